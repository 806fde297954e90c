// The benchmarks' data and checks, against a plain reference that shares no code with them.
#include "bench/harness/pattern.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "bench/harness/operation.h"

namespace shunt::bench {
namespace {

using Bytes = std::vector<unsigned char>;

double FromBits(uint64_t bits, int mantissa, int exponent_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint64_t fraction = bits & ((uint64_t{1} << mantissa) - 1);
  const int exponent = static_cast<int>(bits >> mantissa) & ((1 << exponent_bits) - 1);
  if (exponent == 0) return std::ldexp(static_cast<double>(fraction), 1 - bias - mantissa);
  return std::ldexp(static_cast<double>(fraction + (uint64_t{1} << mantissa)),
                    exponent - bias - mantissa);
}

// Non-negative numbers only, which is what the patterns are made of.
double Decode(DataType dtype, const unsigned char* at) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, SizeOf(dtype));
  switch (dtype) {
    case DataType::kFloat16:
      return FromBits(bits, 10, 5);
    case DataType::kBfloat16:
      return FromBits(bits, 7, 8);
    case DataType::kFloat32:
      return FromBits(bits, 23, 8);
    case DataType::kFloat64:
      return FromBits(bits, 52, 11);
    case DataType::kFloat8E4M3:
      return FromBits(bits, 3, 4);
    case DataType::kFloat8E5M2:
      return FromBits(bits, 2, 5);
    default:
      return static_cast<double>(bits);
  }
}

double Reduce(Redop redop, const std::vector<double>& values, const std::vector<double>& scalars) {
  double result = redop == Redop::kProd ? 1 : redop == Redop::kMin ? 1e300 : 0;
  for (size_t r = 0; r < values.size(); ++r) {
    if (redop == Redop::kProd) result *= values[r];
    if (redop == Redop::kMin) result = std::min(result, values[r]);
    if (redop == Redop::kMax) result = std::max(result, values[r]);
    if (redop == Redop::kSum || redop == Redop::kAvg) result += values[r];
    if (redop == Redop::kPremulSum) result += values[r] * scalars[r];
  }
  return redop == Redop::kAvg ? result / static_cast<double>(values.size()) : result;
}

// The bits of `value`, found by search: independent of the encoder under test. Empty if the type
// does not hold it.
Bytes EncodeBySearch(DataType dtype, double value) {
  const size_t size = SizeOf(dtype);
  Bytes bytes(size);
  if (IsInteger(dtype)) {
    const auto whole = static_cast<uint64_t>(value);
    std::memcpy(bytes.data(), &whole, size);
    return bytes;
  }
  if (dtype == DataType::kFloat32) {
    const float f = static_cast<float>(value);
    std::memcpy(bytes.data(), &f, size);
    return bytes;
  }
  if (dtype == DataType::kFloat64) {
    std::memcpy(bytes.data(), &value, size);
    return bytes;
  }
  for (uint32_t bits = 0; bits < (1u << (8 * size - 1)); ++bits) {
    std::memcpy(bytes.data(), &bits, size);
    if (Decode(dtype, bytes.data()) == value) return bytes;
  }
  return {};
}

TEST_CASE("reduced data is exact in every type, reduction and number of ranks") {
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int r = 0; r < kRedopCount; ++r) {
      for (const int ranks : {1, 2, 3, 4, 7, 8}) {
        Problem p = MakeProblem(Operation::kAllReduce, static_cast<DataType>(t), ranks,
                                37 * SizeOf(static_cast<DataType>(t)));
        p.redop = static_cast<Redop>(r);
        const size_t size = SizeOf(p.dtype);
        INFO(std::string(shunt::Name(p.dtype))
             << ' ' << std::string(shunt::Name(p.redop)) << ' ' << ranks);
        std::vector<Bytes> inputs;
        std::vector<double> scalars;
        for (int rank = 0; rank < ranks; ++rank) {
          Bytes input(p.count * size);
          FillInput(p, rank, input.data());
          inputs.push_back(input);
          unsigned char scalar[8];
          FillScalar(p, rank, scalar);
          scalars.push_back(Decode(p.dtype, scalar));
        }
        Bytes output;
        for (uint64_t i = 0; i < p.count; ++i) {
          std::vector<double> values;
          for (const Bytes& input : inputs) values.push_back(Decode(p.dtype, &input[i * size]));
          const Bytes element = EncodeBySearch(p.dtype, Reduce(p.redop, values, scalars));
          REQUIRE(element.size() == size);
          output.insert(output.end(), element.begin(), element.end());
        }
        CHECK(CountWrong(p, 0, output.data()) == 0);
        output[5 * size] ^= 1;
        CHECK(CountWrong(p, 0, output.data()) == 1);
      }
    }
  }
}

TEST_CASE("contributions differ between ranks, so that a missing one shows") {
  Problem p = MakeProblem(Operation::kAllReduce, DataType::kFloat32, 2, 400);
  std::vector<float> first(100);
  std::vector<float> second(100);
  FillInput(p, 0, first.data());
  FillInput(p, 1, second.data());
  CHECK(first != second);
  CHECK(CountWrong(p, 0, first.data()) > 50);
}

// Moves blocks by the definition of each operation.
std::vector<std::vector<uint32_t>> MoveByDefinition(const Problem& p,
                                                    const std::vector<std::vector<uint32_t>>& in) {
  const int n = p.ranks;
  const size_t c = p.count;
  std::vector<std::vector<uint32_t>> out(n);
  const auto append = [](std::vector<uint32_t>& to, const std::vector<uint32_t>& from, size_t at,
                         size_t count) {
    to.insert(to.end(), from.begin() + at, from.begin() + at + count);
  };
  for (int me = 0; me < n; ++me) {
    if (p.op == Operation::kBroadcast) append(out[me], in[p.root], 0, c);
    if (p.op == Operation::kScatter) append(out[me], in[p.root], me * c, c);
    if (p.op == Operation::kSendRecv) append(out[me], in[(me + n - 1) % n], 0, c);
    for (int from = 0; from < n; ++from) {
      if (p.op == Operation::kAllGather) append(out[me], in[from], 0, c);
      if (p.op == Operation::kGather && me == p.root) append(out[me], in[from], 0, c);
      if (p.op == Operation::kAllToAll) append(out[me], in[from], me * c, c);
      if (p.op == Operation::kAllToAllV) {
        const VectorLayout theirs = LayoutOf(p, from);
        append(out[me], in[from], theirs.displacements[me], theirs.counts[me]);
      }
    }
  }
  return out;
}

TEST_CASE("moved data must arrive where the operation says") {
  for (const Operation op :
       {Operation::kBroadcast, Operation::kAllGather, Operation::kAllToAll, Operation::kAllToAllV,
        Operation::kGather, Operation::kScatter, Operation::kSendRecv}) {
    for (const int ranks : {1, 2, 3, 4, 5}) {
      Problem p = MakeProblem(op, DataType::kUint32, ranks, 4 * 11 * ranks);
      p.root = ranks - 1;
      INFO(std::string(Name(op)) << ' ' << ranks);
      std::vector<std::vector<uint32_t>> in(ranks);
      for (int r = 0; r < ranks; ++r) {
        in[r].resize(InputElements(p, r));
        FillInput(p, r, in[r].data());
      }
      auto out = MoveByDefinition(p, in);
      for (int r = 0; r < ranks; ++r) {
        REQUIRE(out[r].size() == OutputElements(p, r));
        CHECK(CountWrong(p, r, out[r].data()) == 0);
        if (out[r].empty()) continue;
        out[r].back() ^= 0x80000000;
        CHECK(CountWrong(p, r, out[r].data()) == 1);
      }
    }
  }
}

TEST_CASE("all_to_all_v is uneven, symmetric and moves as much as all_to_all") {
  for (const int ranks : {2, 3, 4, 5, 8}) {
    const Problem p =
        MakeProblem(Operation::kAllToAllV, DataType::kFloat32, ranks, 1000 * 4 * ranks);
    for (int r = 0; r < ranks; ++r) {
      const VectorLayout mine = LayoutOf(p, r);
      uint64_t sum = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        CHECK(mine.counts[peer] == LayoutOf(p, peer).counts[r]);
        CHECK(mine.displacements[peer] == sum);
        sum += mine.counts[peer];
      }
      CHECK(sum == p.count * ranks);
    }
    CHECK(LayoutOf(p, 0).counts[0] != LayoutOf(p, 0).counts[1]);
  }
}

TEST_CASE("a changed input is noticed") {
  const Problem p = MakeProblem(Operation::kReduceScatter, DataType::kFloat16, 3, 600);
  std::vector<uint16_t> input(InputElements(p, 2));
  FillInput(p, 2, input.data());
  CHECK(CountChangedInput(p, 2, input.data()) == 0);
  input[7] ^= 4;
  CHECK(CountChangedInput(p, 2, input.data()) == 1);
}

TEST_CASE("sizes and bus bandwidths are those of nccl-tests") {
  const Problem all_reduce = MakeProblem(Operation::kAllReduce, DataType::kFloat32, 4, 1 << 20);
  CHECK(all_reduce.count == (1 << 18));
  CHECK(SizeBytes(all_reduce) == (1 << 20));
  CHECK(BusFactor(Operation::kAllReduce, 4) == 1.5);

  const Problem gather = MakeProblem(Operation::kAllGather, DataType::kFloat32, 4, 1 << 20);
  CHECK(gather.count == (1 << 16));
  CHECK(SizeBytes(gather) == (1 << 20));
  CHECK(BusFactor(Operation::kAllGather, 4) == 0.75);
  CHECK(BusFactor(Operation::kReduceScatter, 4) == 0.75);
  CHECK(BusFactor(Operation::kAllToAll, 4) == 0.75);
  CHECK(BusFactor(Operation::kBroadcast, 4) == 1);
  CHECK(BusFactor(Operation::kSendRecv, 4) == 1);

  CHECK(MakeProblem(Operation::kAllGather, DataType::kFloat64, 4, 8).count == 1);
  CHECK(InPlaceOffset(gather, 3) == 3 * gather.count);
}

}  // namespace
}  // namespace shunt::bench
