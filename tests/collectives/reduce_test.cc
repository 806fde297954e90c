// Every comparison is bit for bit, on every instruction set that this machine has.
#include "runtime/collectives/exec/reduce.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "catch2/catch.hpp"
// clang-format off
#include "runtime/collectives/exec/simd_targets.h"  // before Highway
#include "hwy/targets.h"
// clang-format on
#include "tests/collectives/reference.h"

#if HWY_ARCH_X86
#include <xmmintrin.h>
#endif

namespace shunt {
namespace {

using testing::ReferenceReduce;

class Random {
 public:
  uint64_t Bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1d;
  }
  uint64_t Below(uint64_t n) { return (Bits() >> 32) % n; }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15;
};

// Runs `body` once for each compiled instruction set.
void OnEveryTarget(const std::function<void()>& body) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    INFO("instruction set " << hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

// A buffer with a chosen misalignment and guard bytes after it. Without a guard the allocation ends
// with the buffer, for the address sanitizer.
class Buffer {
 public:
  Buffer(size_t bytes, size_t misalignment, size_t guard)
      : bytes_(bytes),
        misalignment_(misalignment),
        guard_(guard),
        memory_(new (std::align_val_t{64}) std::byte[misalignment + bytes + guard]) {
    std::memset(memory_.get(), 0xa5, misalignment + bytes + guard);
  }
  std::byte* data() { return memory_.get() + misalignment_; }
  bool GuardsIntact() const {
    for (size_t i = 0; i < misalignment_; ++i) {
      if (memory_.get()[i] != std::byte{0xa5}) return false;
    }
    for (size_t i = 0; i < guard_; ++i) {
      if (memory_.get()[misalignment_ + bytes_ + i] != std::byte{0xa5}) return false;
    }
    return true;
  }

 private:
  struct Delete {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  size_t bytes_, misalignment_, guard_;
  std::unique_ptr<std::byte[], Delete> memory_;
};

// One element: mostly ordinary numbers, with the special ones that break kernels among them.
uint64_t Element(Random& random, DataType type) {
  const uint64_t raw = random.Bits();
  if (IsInteger(type)) return random.Below(4) == 0 ? raw % 7 : raw;
  const bool wild = random.Below(8) == 0;  // any bits: NaN, infinities, subnormals, huge
  switch (type) {
    case DataType::kFloat32: {
      static constexpr uint32_t kSpecial[] = {0,          0x80000000, 0x7f800000, 0xff800000,
                                              0x7fc00001, 0xffa00000, 1,          0x7f7fffff};
      if (wild) return kSpecial[random.Below(8)];
      return (raw & 0x80ffffff) | (uint64_t{0x3c} + random.Below(6)) << 24;
    }
    case DataType::kFloat64: {
      static constexpr uint64_t kSpecial[] = {
          0,
          0x8000000000000000,
          0x7ff0000000000000,
          0xfff0000000000000,
          0x7ff8000000000001,
          0xfff4000000000000,
          1,
          0x7fefffffffffffff,
      };
      if (wild) return kSpecial[random.Below(8)];
      return (raw & 0x800fffffffffffff) | (uint64_t{0x3fa} + random.Below(12)) << 52;
    }
    default:
      return raw & (SizeOf(type) == 2 ? 0xffff : 0xff);
  }
}

struct Data {
  std::vector<std::vector<uint64_t>> contributions;  // [rank][element]
  std::vector<uint64_t> factors;                     // [rank]
};

Data MakeData(Random& random, DataType type, size_t ranks, size_t count) {
  Data data;
  data.contributions.resize(ranks);
  for (auto& row : data.contributions) {
    for (size_t i = 0; i < count; ++i) row.push_back(Element(random, type));
  }
  for (size_t k = 0; k < ranks; ++k) data.factors.push_back(Element(random, type));
  return data;
}

std::vector<uint64_t> Expected(DataType type, Redop redop, int divisor, const Data& data) {
  const size_t ranks = data.contributions.size();
  const std::vector<uint64_t> factors =
      redop == Redop::kPremulSum ? data.factors : std::vector<uint64_t>();
  std::vector<uint64_t> expected;
  std::vector<uint64_t> column(ranks);
  for (size_t i = 0; i < data.contributions[0].size(); ++i) {
    for (size_t k = 0; k < ranks; ++k) column[k] = data.contributions[k][i];
    expected.push_back(ReferenceReduce(type, redop, divisor, column, factors));
  }
  return expected;
}

std::vector<std::byte> Packed(const std::vector<uint64_t>& values, DataType type) {
  const size_t size = SizeOf(type);
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(&bytes[i * size], &values[i], size);
  return bytes;
}

enum class InPlace { kNone, kAll, kFirst, kLast };
constexpr InPlace kEveryInPlace[] = {InPlace::kNone, InPlace::kAll, InPlace::kFirst,
                                     InPlace::kLast};

struct Case {
  ReduceSpec spec;
  size_t count;
  InPlace in_place;
  bool mixed_alignment;
  size_t misalignment;
};

// The same as they lie in memory, and what must come out.
struct PackedData {
  std::vector<std::vector<std::byte>> contributions;
  std::vector<std::byte> expected;
};

PackedData Pack(DataType type, const Data& data, const std::vector<uint64_t>& expected) {
  PackedData packed;
  for (const auto& row : data.contributions) packed.contributions.push_back(Packed(row, type));
  packed.expected = Packed(expected, type);
  return packed;
}

// Empty, or what went wrong.
std::string Failure(const Case& c, const Data& data, const PackedData& packed) {
  const size_t ranks = data.contributions.size();
  const size_t size = SizeOf(c.spec.dtype);
  const size_t bytes = c.count * size;
  std::vector<Buffer> in, out;
  std::vector<const std::byte*> srcs;
  std::vector<std::byte*> dsts;
  const size_t out_count = c.in_place == InPlace::kAll ? ranks : 1 + ranks / 2;
  for (size_t k = 0; k < ranks; ++k) {
    const size_t skew = c.mixed_alignment ? k * 5 : 0;
    const bool written = c.in_place == InPlace::kAll || c.in_place == InPlace::kFirst ||
                         c.in_place == InPlace::kLast;
    in.emplace_back(bytes, (c.misalignment + skew) % 64, written ? 64 : 0);
    if (bytes != 0) std::memcpy(in[k].data(), packed.contributions[k].data(), bytes);
    srcs.push_back(in[k].data());
  }
  for (size_t d = 0; d < out_count; ++d) {
    const size_t skew = c.mixed_alignment ? d * 3 : 0;
    out.emplace_back(bytes, (c.misalignment + skew) % 64, 64);
    dsts.push_back(out[d].data());
  }
  if (c.in_place == InPlace::kAll) {
    for (size_t k = 0; k < ranks; ++k) dsts[k] = in[k].data();
  } else if (c.in_place == InPlace::kFirst) {
    dsts[0] = in[0].data();
  } else if (c.in_place == InPlace::kLast) {
    dsts.back() = in.back().data();
  }
  std::vector<Scalar> scalars(ranks);
  for (size_t k = 0; k < ranks; ++k) {
    std::memset(scalars[k].bytes, 0x5a, sizeof(Scalar));
    std::memcpy(scalars[k].bytes, &data.factors[k], size);
  }

  ReduceInto(c.spec, srcs, scalars, dsts, c.count);

  for (std::byte* dst : dsts) {
    if (bytes == 0 || std::memcmp(dst, packed.expected.data(), bytes) == 0) continue;
    size_t i = 0;
    while (std::memcmp(dst + i * size, &packed.expected[i * size], size) == 0) ++i;
    uint64_t got = 0, want = 0;
    std::memcpy(&got, dst + i * size, size);
    std::memcpy(&want, &packed.expected[i * size], size);
    char text[200];
    std::snprintf(text, sizeof(text), "element %zu: got %llx, expected %llx from %llx, %llx ...", i,
                  static_cast<unsigned long long>(got), static_cast<unsigned long long>(want),
                  static_cast<unsigned long long>(data.contributions[0][i]),
                  static_cast<unsigned long long>(data.contributions.back()[i]));
    return text;
  }
  for (size_t k = 0; k < ranks; ++k) {
    if (!in[k].GuardsIntact()) return "wrote outside an in-place buffer";
    bool written = false;
    for (std::byte* dst : dsts) written = written || dst == in[k].data();
    if (written) continue;
    if (bytes != 0 && std::memcmp(in[k].data(), packed.contributions[k].data(), bytes) != 0) {
      return "wrote a source";
    }
  }
  for (const Buffer& buffer : out) {
    if (!buffer.GuardsIntact()) return "wrote outside a destination";
  }
  return "";
}

TEST_CASE("every type and reduction gives the reference's bits on every instruction set") {
  constexpr size_t kCounts[] = {0,  1,  2,  3,   5,   7,   8,   15,  16,  17,  31,  32,  33,  63,
                                64, 65, 96, 127, 128, 129, 200, 255, 256, 257, 300, 511, 513, 777};
  constexpr size_t kMisalignments[] = {0, 1, 4, 8, 24, 32, 61};
  Random random;
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int op = 0; op < kRedopCount; ++op) {
      for (size_t ranks : {1, 2, 3, 4, 5, 8, 17, 70}) {
        const auto dtype = static_cast<DataType>(type);
        const auto redop = static_cast<Redop>(op);
        const size_t elements = ranks <= 5 ? 777 : 257;
        const Data data = MakeData(random, dtype, ranks, elements);
        const auto divisor = static_cast<int>(ranks);
        const PackedData packed = Pack(dtype, data, Expected(dtype, redop, divisor, data));
        size_t turn = 0;
        OnEveryTarget([&] {
          for (size_t count : kCounts) {
            if (count > elements) continue;
            for (InPlace in_place : kEveryInPlace) {
              for (StorePolicy store : {StorePolicy::kTemporal, StorePolicy::kStreaming}) {
                ++turn;
                const Case c = {{dtype, redop, divisor, store},
                                count,
                                in_place,
                                turn % 5 == 0,
                                turn % 2 == 0 ? 0 : kMisalignments[turn % 7]};
                const std::string failure = Failure(c, data, packed);
                if (failure.empty()) continue;
                FAIL(Name(dtype) << " " << Name(redop) << " of " << ranks << " ranks, count "
                                 << count << ", in place " << static_cast<int>(in_place)
                                 << ", store " << static_cast<int>(store) << ": " << failure);
              }
            }
          }
        });
      }
    }
  }
}

// Reduces whole columns at once and compares each element.
void CheckColumns(DataType type, Redop redop, int divisor, const Data& data) {
  const PackedData packed = Pack(type, data, Expected(type, redop, divisor, data));
  OnEveryTarget([&] {
    const Case c = {{type, redop, divisor, StorePolicy::kTemporal},
                    data.contributions[0].size(),
                    InPlace::kNone,
                    false,
                    0};
    INFO(Name(type) << " " << Name(redop));
    CHECK(Failure(c, data, packed) == "");
  });
}

TEST_CASE("all pairs of float8 values are combined exactly as rounded") {
  for (DataType type : {DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    Data data;
    data.contributions.resize(2);
    for (uint64_t pair = 0; pair < 65536; ++pair) {
      data.contributions[0].push_back(pair & 0xff);
      data.contributions[1].push_back(pair >> 8);
    }
    data.factors = {0x38, 0xb4};
    for (Redop redop : {Redop::kSum, Redop::kProd, Redop::kMin, Redop::kMax, Redop::kPremulSum}) {
      CheckColumns(type, redop, 1, data);
    }
    for (int divisor : {2, 3, 5, 7, 100}) CheckColumns(type, Redop::kAvg, divisor, data);
  }
}

TEST_CASE("every 16-bit float value survives, and sums and products of them round correctly") {
  for (DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    Random random;
    Data data;
    data.contributions.resize(2);
    for (uint64_t bits = 0; bits < 65536; ++bits) {
      data.contributions[0].push_back(bits);
      data.contributions[1].push_back(bits);
    }
    data.factors = {0x3c01, 0x3555};
    CheckColumns(type, Redop::kMax, 1, data);
    CheckColumns(type, Redop::kAvg, 2, data);
    CheckColumns(type, Redop::kSum, 2, data);  // overflow to infinity
    for (uint64_t bits = 0; bits < 65536; ++bits) {
      // Near the first operand's exponent, where sums have bits to round.
      data.contributions[1][bits] = (bits ^ (random.Bits() & 0x9fff)) & 0xffff;
    }
    CheckColumns(type, Redop::kSum, 1, data);
    CheckColumns(type, Redop::kProd, 1, data);
    CheckColumns(type, Redop::kPremulSum, 1, data);
    CheckColumns(type, Redop::kAvg, 3, data);
  }
}

TEST_CASE("float8 rounding is right on a dense sample of sums of three products") {
  for (DataType type : {DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    Random random;
    for (int round = 0; round < 8; ++round) {
      CheckColumns(type, Redop::kPremulSum, 1, MakeData(random, type, 3, 20000));
    }
  }
}

TEST_CASE("the conversions' corner values") {
  const auto sum = [](DataType type, uint64_t a, uint64_t b) {
    uint64_t result = 0;
    const auto* pa = reinterpret_cast<const std::byte*>(&a);
    const auto* pb = reinterpret_cast<const std::byte*>(&b);
    ReduceInto({type, Redop::kSum, 1, StorePolicy::kTemporal}, {pa, pb}, {},
               {reinterpret_cast<std::byte*>(&result)}, 1);
    return result;
  };
  OnEveryTarget([&] {
    CHECK(sum(DataType::kFloat8E4M3, 0x7e, 0x7e) == 0x7e);  // 448 + 448 saturates
    CHECK(sum(DataType::kFloat8E4M3, 0xfe, 0xfe) == 0xfe);
    CHECK(sum(DataType::kFloat8E4M3, 0x7f, 0x00) == 0x7f);      // NaN
    CHECK(sum(DataType::kFloat8E4M3, 0xff, 0x00) == 0x7f);      // NaN has one form
    CHECK(sum(DataType::kFloat8E4M3, 0x01, 0x01) == 0x02);      // subnormals, 2^-9 each
    CHECK(sum(DataType::kFloat8E4M3, 0x07, 0x01) == 0x08);      // up to the first normal
    CHECK(sum(DataType::kFloat8E5M2, 0x7b, 0x7b) == 0x7b);      // 57344 saturates
    CHECK(sum(DataType::kFloat8E5M2, 0x7c, 0x00) == 0x7b);      // and so does infinity
    CHECK(sum(DataType::kFloat8E5M2, 0x7c, 0xfc) == 0x7e);      // inf - inf
    CHECK(sum(DataType::kFloat16, 0x7bff, 0x7bff) == 0x7c00);   // 65504 * 2 is infinite
    CHECK(sum(DataType::kFloat16, 0x3c00, 0x1000) == 0x3c00);   // 1 + 2^-11: tie to even
    CHECK(sum(DataType::kFloat16, 0x3c01, 0x1000) == 0x3c02);   // and up
    CHECK(sum(DataType::kBfloat16, 0x3f80, 0x3b80) == 0x3f80);  // 1 + 2^-8: tie to even
    CHECK(sum(DataType::kBfloat16, 0x3f81, 0x3b80) == 0x3f82);
    CHECK(sum(DataType::kFloat32, 0x7f800000, 0xff800000) == 0x7fc00000);
    CHECK(sum(DataType::kInt8, 0x7f, 0x01) == 0x80);
  });
}

#if HWY_ARCH_X86
TEST_CASE("the caller's floating-point mode changes no bits and is given back") {
  Random random;
  for (DataType type :
       {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kFloat8E4M3}) {
    Data data = MakeData(random, type, 3, 300);
    for (auto& row : data.contributions) {
      row[0] = 1;  // subnormal
    }
    const Case c = {{type, Redop::kAvg, 3, StorePolicy::kTemporal}, 300, InPlace::kNone, false, 0};
    const PackedData packed = Pack(type, data, Expected(type, Redop::kAvg, 3, data));
    OnEveryTarget([&] {
      // Flush to zero, subnormals are zero, round down, with a sticky flag set.
      constexpr unsigned kMode = 0x1f80 | 0x8000 | 0x0040 | 0x2000 | 0x0001;
      const unsigned before = _mm_getcsr();
      _mm_setcsr(kMode);
      const std::string failure = Failure(c, data, packed);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      CHECK(failure == "");
      CHECK((after & ~0x3fu) == (kMode & ~0x3fu));
    });
  }
}
#endif

TEST_CASE("cutting the buffer anywhere changes no bits") {
  Random random;
  const Data data = MakeData(random, DataType::kFloat32, 2, 500);
  const std::vector<std::byte> a = Packed(data.contributions[0], DataType::kFloat32);
  const std::vector<std::byte> b = Packed(data.contributions[1], DataType::kFloat32);
  std::vector<std::byte> whole(2000), pieces(2000);
  const ReduceSpec spec = {DataType::kFloat32, Redop::kSum, 2, StorePolicy::kTemporal};
  ReduceInto(spec, {a.data(), b.data()}, {}, {whole.data()}, 500);
  for (size_t at = 0; at < 500;) {
    const size_t n = std::min<size_t>(1 + random.Below(90), 500 - at);
    ReduceInto(spec, {a.data() + 4 * at, b.data() + 4 * at}, {}, {pieces.data() + 4 * at}, n);
    at += n;
  }
  CHECK(whole == pieces);
}

TEST_CASE("a copy writes every destination, and skips the source itself") {
  Random random;
  for (size_t bytes : {0, 1, 7, 64, 255, 256, 257, 1000, 4096, 5001}) {
    for (StorePolicy policy : {StorePolicy::kTemporal, StorePolicy::kStreaming}) {
      for (size_t misalignment : {0, 1, 16, 63}) {
        for (size_t dst_count : {1, 2, 5}) {
          OnEveryTarget([&] {
            Buffer src(bytes, misalignment, 0);
            for (size_t i = 0; i < bytes; ++i) src.data()[i] = std::byte(random.Bits() >> 56);
            std::vector<Buffer> out;
            std::vector<std::byte*> dsts;
            for (size_t d = 0; d < dst_count; ++d) {
              out.emplace_back(bytes, (misalignment * d) % 64, 64);
              dsts.push_back(out[d].data());
            }
            dsts.insert(dsts.begin() + dst_count / 2, src.data());
            CopyInto(src.data(), dsts, bytes, policy);
            bool right = true;
            for (Buffer& buffer : out) {
              right = right && buffer.GuardsIntact() &&
                      (bytes == 0 || std::memcmp(buffer.data(), src.data(), bytes) == 0);
            }
            if (!right) FAIL(bytes << " bytes to " << dst_count);
          });
        }
      }
    }
  }
}

TEST_CASE("a copy in place does not touch memory that it may only read") {
  constexpr size_t kBytes = 8192;
  void* page = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto* src = static_cast<std::byte*>(page);
  std::vector<std::byte> other(kBytes, std::byte{1});
  for (StorePolicy policy : {StorePolicy::kTemporal, StorePolicy::kStreaming}) {
    for (size_t bytes : {size_t{64}, kBytes}) {
      CopyInto(src, {src}, bytes, policy);
      CopyInto(src, {other.data(), src}, bytes, policy);
    }
  }
  CHECK(other == std::vector<std::byte>(kBytes));
  munmap(page, kBytes);
}

}  // namespace
}  // namespace shunt
