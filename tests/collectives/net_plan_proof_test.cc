// Proves every plan among nodes. A sanitizer or a debug build takes a subset of the sizes.
#include <cstdint>
#include <string>
#include <vector>

#include "catch2/catch.hpp"
#include "runtime/collectives/plan/net_plan.h"
#include "runtime/collectives/plan/net_prove.h"

namespace shunt {
namespace {

#if defined(__has_feature)
#define SHUNT_HAS_FEATURE(x) __has_feature(x)
#else
#define SHUNT_HAS_FEATURE(x) 0
#endif
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    SHUNT_HAS_FEATURE(address_sanitizer) || SHUNT_HAS_FEATURE(thread_sanitizer) ||             \
    SHUNT_HAS_FEATURE(undefined_behavior_sanitizer)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

constexpr int kLargest = 130;

// Every size, or the small ones and those around powers of two.
std::vector<int> Sizes() {
  std::vector<int> sizes;
  for (int n = 1; n <= kLargest; ++n) {
    if (!kSlow || n <= 17 || n == 31 || n == 33 || n == 64 || n == 127) sizes.push_back(n);
  }
  return sizes;
}

std::vector<int> Roots(OpKind kind, int participants) {
  if (!HasRoot(kind)) return {0};
  std::vector<int> roots;
  for (int root = 0; root < participants; ++root) {
    const bool edge = root < 2 || root == participants / 2 || root == participants - 1;
    if (!kSlow || participants <= 17 || edge) roots.push_back(root);
  }
  return roots;
}

// Catch assertions are slow; report the first failure of many cases.
std::string FirstFailure(OpKind kind, Algorithm algorithm) {
  if (!Supports(algorithm, kind)) return "";
  NetProver prover;
  const bool aggregated = algorithm == Algorithm::kAggregated;
  const std::vector<int> aggregators = aggregated ? std::vector<int>{1, 2, 3, 8} : std::vector{0};
  for (int participants : Sizes()) {
    for (int root : Roots(kind, participants)) {
      for (int a : aggregators) {
        const NetSpec spec = {kind, algorithm, participants, root, a};
        if (!ValidateNetSpec(spec).ok()) return ValidateNetSpec(spec).ToString();
        const auto proof = prover.Prove(spec);
        if (!proof.ok()) return proof.status().ToString();
      }
    }
  }
  return "";
}

void ProveAll(OpKind kind) {
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    INFO(Name(kind) << " by " << Name(algorithm));
    CHECK(FirstFailure(kind, algorithm) == "");
  }
}

TEST_CASE("every all_reduce is proved, with the same bits for all") {
  ProveAll(OpKind::kAllReduce);
}
TEST_CASE("every barrier is proved") { ProveAll(OpKind::kBarrier); }
TEST_CASE("every reduce_scatter is proved") { ProveAll(OpKind::kReduceScatter); }
TEST_CASE("every all_gather is proved") { ProveAll(OpKind::kAllGather); }
TEST_CASE("every all_to_all is proved") { ProveAll(OpKind::kAllToAll); }
TEST_CASE("every all_to_all_v is proved") { ProveAll(OpKind::kAllToAllV); }
TEST_CASE("every broadcast is proved for every root") { ProveAll(OpKind::kBroadcast); }
TEST_CASE("every reduce is proved for every root") { ProveAll(OpKind::kReduce); }
TEST_CASE("every gather is proved for every root") { ProveAll(OpKind::kGather); }
TEST_CASE("every scatter is proved for every root") { ProveAll(OpKind::kScatter); }

}  // namespace
}  // namespace shunt
