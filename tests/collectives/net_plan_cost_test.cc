#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch2/catch.hpp"
#include "runtime/collectives/plan/net_cost.h"
#include "runtime/collectives/plan/net_prove.h"

namespace shunt {
namespace {

constexpr OpKind kEveryKind[] = {OpKind::kBarrier,   OpKind::kAllReduce, OpKind::kReduce,
                                 OpKind::kBroadcast, OpKind::kAllGather, OpKind::kReduceScatter,
                                 OpKind::kAllToAll,  OpKind::kAllToAllV, OpKind::kGather,
                                 OpKind::kScatter};

std::vector<Algorithm> AllAlgorithms() {
  std::vector<Algorithm> all;
  for (int i = 0; i < kAlgorithmCount; ++i) all.push_back(static_cast<Algorithm>(i));
  return all;
}

// 100 Gbit/s, 5 us, 1 us a message, 20 GB/s of additions.
LinkModel Link() {
  LinkModel link;
  link.latency_s = 5e-6;
  link.message_overhead_s = 1e-6;
  link.bytes_per_s = 12.5e9;
  link.reduce_bytes_per_s = 20e9;
  return link;
}

// In up to 16 slices of 64 KiB and more of each block.
double Seconds(const NetSpec& spec, uint64_t bytes, const LinkModel& link = Link()) {
  const NetCost cost = CostOf(spec, bytes);
  const double slices = std::clamp(cost.block_bytes / (64 << 10), 1.0, 16.0);
  return PredictSeconds(cost, link, static_cast<uint32_t>(slices));
}

bool Near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(a, b); }

// What the closed form and the steps disagree about; "" if nothing.
std::string Difference(const NetSpec& spec, NetProver* prover) {
  const auto proof = prover->Prove(spec);
  if (!proof.ok()) return std::string(proof.status().message());
  const uint64_t bytes = uint64_t{1} << 30;
  const NetCost cost = CostOf(spec, bytes);
  const double block = cost.block_bytes;
  const NetLoad& p = proof->participant;
  const NetLoad& a = proof->aggregator;
  const double link =
      block * std::max({p.sent_blocks, p.received_blocks, a.sent_blocks, a.received_blocks});
  const double messages =
      std::max({p.sent_messages, p.received_messages, a.sent_messages, a.received_messages});
  const double reduced = block * std::max(p.reduced_blocks, a.reduced_blocks);
  const std::string name = absl::StrCat(absl::string_view(Name(spec.kind).data()), " by ",
                                        static_cast<int>(spec.algorithm), " of ", spec.participants,
                                        " and ", spec.aggregators, ": ");
  if (!Near(proof->rounds, cost.latencies)) {
    return absl::StrCat(name, proof->rounds, " rounds, not ", cost.latencies);
  }
  if (!Near(messages, cost.messages)) {
    return absl::StrCat(name, messages, " messages, not ", cost.messages);
  }
  if (spec.kind == OpKind::kBarrier) return link == 0 && cost.link_bytes == 0 ? "" : name;
  if (!Near(link, cost.link_bytes)) {
    return absl::StrCat(name, link / block, " blocks, not ", cost.link_bytes / block);
  }
  if (!Near(reduced, cost.reduced_bytes)) {
    return absl::StrCat(name, reduced / block, " combinations, not ", cost.reduced_bytes / block);
  }
  if (cost.path_bytes < cost.link_bytes * (1 - 1e-9)) return name + "path shorter than link";
  return "";
}

TEST_CASE("closed forms say what the steps add up to") {
  NetProver prover;
  for (OpKind kind : kEveryKind) {
    for (Algorithm algorithm : AllAlgorithms()) {
      if (!Supports(algorithm, kind)) continue;
      const bool aggregated = algorithm == Algorithm::kAggregated;
      std::string difference;
      for (int n = 2; n <= 70 && difference.empty(); ++n) {
        for (int a : aggregated ? std::vector<int>{1, 2, 5, 100} : std::vector<int>{0}) {
          difference = Difference({kind, algorithm, n, n / 3, a}, &prover);
          if (!difference.empty()) break;
        }
      }
      CHECK(difference == "");
    }
  }
}

double LinkBytes(OpKind kind, Algorithm algorithm, int n, int aggregators = 0) {
  return CostOf({kind, algorithm, n, 0, aggregators}, 1000000).link_bytes;
}

TEST_CASE("plans for many bytes load the busiest link as little as can be") {
  for (int n : {2, 3, 8, 64, 130}) {
    const double least = 2.0 * (n - 1) / n * 1e6;
    CHECK(LinkBytes(OpKind::kAllReduce, Algorithm::kRing, n) == Approx(least));
    CHECK(LinkBytes(OpKind::kAllReduce, Algorithm::kPairwise, n) == Approx(least));
    CHECK(LinkBytes(OpKind::kAllGather, Algorithm::kPat, n) == Approx(least / 2));
    CHECK(LinkBytes(OpKind::kReduceScatter, Algorithm::kRing, n) == Approx(least / 2));
    CHECK(LinkBytes(OpKind::kAllToAll, Algorithm::kPairwise, n) == Approx(least / 2));
    CHECK(LinkBytes(OpKind::kBroadcast, Algorithm::kRing, n) == 1e6);
    CHECK(LinkBytes(OpKind::kBroadcast, Algorithm::kDoubleTree, n) == 1e6);
    CHECK(LinkBytes(OpKind::kReduce, Algorithm::kDoubleTree, n) == 1e6);
    CHECK(LinkBytes(OpKind::kAllReduce, Algorithm::kAggregated, n, n) == Approx(1e6));
  }
  CHECK(LinkBytes(OpKind::kAllReduce, Algorithm::kHalvingDoubling, 64) == Approx(2 * 63e6 / 64));
}

// The fastest that has a plan.
Algorithm Best(OpKind kind, int n, uint64_t bytes, const std::vector<Algorithm>& candidates,
               const LinkModel& link = Link()) {
  const auto seconds = [&](Algorithm a) { return Seconds({kind, a, n}, bytes, link); };
  Algorithm best = candidates.front();
  for (const Algorithm a : candidates) {
    if (ValidateNetSpec({kind, a, n}).ok() && seconds(a) < seconds(best)) best = a;
  }
  REQUIRE(ValidateNetSpec({kind, best, n}).ok());
  return best;
}

TEST_CASE("few bytes are a matter of latencies, many of link bytes") {
  const auto seconds = [](OpKind kind, Algorithm algorithm, uint64_t bytes) {
    return Seconds({kind, algorithm, 16}, bytes);
  };
  const OpKind all_reduce = OpKind::kAllReduce;
  const double ring = seconds(all_reduce, Algorithm::kRing, 8);
  CHECK(seconds(all_reduce, Algorithm::kRecursiveDoubling, 8) < ring / 5);
  CHECK(seconds(all_reduce, Algorithm::kDoubleTree, 8) < ring / 3);
  CHECK(seconds(OpKind::kBroadcast, Algorithm::kBinomial, 8) <
        seconds(OpKind::kBroadcast, Algorithm::kRing, 8) / 3);

  const uint64_t many = 64 << 20;
  const double doubling = seconds(all_reduce, Algorithm::kRecursiveDoubling, many);
  CHECK(seconds(all_reduce, Algorithm::kRing, many) < doubling / 2);
  // It copies what lies apart, but still.
  CHECK(seconds(all_reduce, Algorithm::kHalvingDoubling, many) < doubling);
  CHECK(seconds(all_reduce, Algorithm::kRing, many) <
        seconds(all_reduce, Algorithm::kHalvingDoubling, many));
  CHECK(seconds(OpKind::kBroadcast, Algorithm::kDoubleTree, many) <
        seconds(OpKind::kBroadcast, Algorithm::kBinomial, many) / 2);
  CHECK(seconds(OpKind::kAllToAll, Algorithm::kPairwise, many) <
        seconds(OpKind::kAllToAll, Algorithm::kBruck, many));
}

TEST_CASE("the choice follows the size") {
  const std::vector<Algorithm> all = AllAlgorithms();
  CHECK(Best(OpKind::kAllReduce, 2, 8, all) != Algorithm::kRing);
  CHECK(Best(OpKind::kAllReduce, 64, 8, all) == Algorithm::kRecursiveDoubling);
  CHECK(Best(OpKind::kAllReduce, 64, 64 << 20,
             {Algorithm::kRing, Algorithm::kRecursiveDoubling, Algorithm::kBinomial}) ==
        Algorithm::kRing);
  CHECK(Best(OpKind::kAllToAll, 64, 64 * 8, {Algorithm::kPairwise, Algorithm::kBruck}) ==
        Algorithm::kBruck);
  CHECK(Best(OpKind::kAllToAll, 64, 64 << 20, {Algorithm::kPairwise, Algorithm::kBruck}) ==
        Algorithm::kPairwise);
}

TEST_CASE("times add latencies, the first slice's way and the pace of the rest") {
  LinkModel link;
  link.latency_s = 10;
  link.message_overhead_s = 1;
  link.bytes_per_s = 4;
  const NetSpec chain = {OpKind::kBroadcast, Algorithm::kRing, 4};
  // Three hops; one slice of 8 bytes takes 2 s a hop.
  CHECK(PredictSeconds(CostOf(chain, 8), link, 1) == 3 * 10 + 3 * 1 + 3 * 2);
  // Five slices of 20 bytes, 5 s each: three hops for the first, four slices behind it.
  CHECK(PredictSeconds(CostOf(chain, 100), link, 5) == 3 * 10 + 5 * 1 + 3 * 5 + 4 * 5);
  CHECK(PredictSeconds(CostOf(chain, 59), link, 2) ==
        Approx(30 + 3 + (3 * 59 / 2.0 + 59 / 2.0) / 4));
  CHECK(PredictSeconds(CostOf(chain, 0), link, 1) == 33);
  // Additions slower than the link set the pace.
  link.reduce_bytes_per_s = 2;
  CHECK(PredictSeconds(CostOf({OpKind::kReduce, Algorithm::kRing, 2}, 8), link, 1) ==
        10 + 1 + 2 + 4);
}

TEST_CASE("incast makes senders take turns") {
  LinkModel link = Link();
  const std::vector<Algorithm> both = {Algorithm::kDirect, Algorithm::kPairwise};
  CHECK(Best(OpKind::kAllToAll, 16, 64 << 20, both, link) == Algorithm::kDirect);
  link.incast_factor = 1.5;
  CHECK(Best(OpKind::kAllToAll, 16, 64 << 20, both, link) == Algorithm::kPairwise);
  CHECK(Best(OpKind::kAllToAll, 16, 64, both, link) == Algorithm::kDirect);
}

}  // namespace
}  // namespace shunt
