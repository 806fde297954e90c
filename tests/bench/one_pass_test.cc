// A bound is only a bound if its loops do the whole work.
#include "bench/bounds/one_pass.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "bench/harness/pattern.h"

namespace shunt::bench {
namespace {

TEST_CASE("one pass does the operation, with either kind of stores") {
  for (const Operation op : {Operation::kAllReduce, Operation::kReduceScatter,
                             Operation::kAllGather, Operation::kAllToAll}) {
    for (const int ranks : {2, 3, 4, 6}) {
      for (const bool non_temporal : {false, true}) {
        for (const bool in_place : {false, true}) {
          if (in_place && !HasInPlace(op)) continue;
          INFO(std::string(Name(op)) << ' ' << ranks << ' ' << non_temporal << ' ' << in_place);
          // A size that three workers cannot split evenly.
          const Problem p = MakeProblem(op, DataType::kFloat32, ranks, 64 * 4 * 11 * ranks);
          auto pass = OnePass::Create(op, ranks, SizeBytes(p), in_place, 3);
          REQUIRE(pass.ok());
          for (int r = 0; r < ranks; ++r) FillInput(p, r, (*pass)->input(r));
          (*pass)->RunOnce(non_temporal);
          for (int r = 0; r < ranks; ++r) CHECK(CountWrong(p, r, (*pass)->output(r)) == 0);
        }
      }
    }
  }
}

TEST_CASE("every instruction set that runs here gives the same sums") {
  std::vector<const StreamKernels*> all = {&kSse2StreamKernels};
  if (__builtin_cpu_supports("avx2")) all.push_back(&kAvx2StreamKernels);
  if (__builtin_cpu_supports("avx512f")) all.push_back(&kAvx512StreamKernels);
  alignas(64) float a[256];
  alignas(64) float b[256];
  alignas(64) float out[256];
  for (int i = 0; i < 256; ++i) a[i] = static_cast<float>(i), b[i] = static_cast<float>(3 * i);
  const float* inputs[] = {a, b};
  float* outputs[] = {out};
  for (const StreamKernels* kernels : all) {
    for (const StreamLoop loop : {kernels->temporal, kernels->non_temporal}) {
      std::fill(out, out + 256, -1.0f);
      loop({inputs, 2, outputs, 1, 64, 192});
      for (int i = 0; i < 256; ++i) {
        CHECK(out[i] == (i >= 64 && i < 192 ? static_cast<float>(4 * i) : -1.0f));
      }
    }
  }
}

TEST_CASE("traffic is counted as documented") {
  constexpr uint64_t kBytes = 1 << 20;
  const auto traffic = [](Operation op, int ranks) {
    auto pass = OnePass::Create(op, ranks, kBytes, false, 1);
    REQUIRE(pass.ok());
    return (*pass)->Measure(1, 1000).traffic_bytes;
  };
  CHECK(traffic(Operation::kAllReduce, 4) == 2 * 4 * kBytes);
  CHECK(traffic(Operation::kAllToAll, 4) == 2 * 4 * kBytes);
  CHECK(traffic(Operation::kAllGather, 4) == 5 * kBytes);
  CHECK(traffic(Operation::kReduceScatter, 4) == 5 * kBytes);
}

TEST_CASE("operations without a bound are refused") {
  CHECK(!OnePass::Create(Operation::kBarrier, 2, 1024, false, 1).ok());
}

}  // namespace
}  // namespace shunt::bench
