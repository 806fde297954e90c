// Measuring connections, estimating from operations, and changing to other numbers together.
#include <catch2/catch.hpp>

#include "runtime/exchange/link_estimate.h"
#include "runtime/exchange/policy_switch.h"

using namespace shunt;
using namespace shunt::exchange;

namespace {

NetCost BandwidthBound() {
  NetCost cost;
  cost.latencies = 6;
  cost.messages = 6;
  cost.link_bytes = 24e6;
  cost.path_bytes = 1e3;
  cost.block_bytes = 4e6;
  return cost;
}

NetCost LatencyBound() {
  NetCost cost;
  cost.latencies = 2;
  cost.messages = 2;
  cost.link_bytes = 16;
  cost.path_bytes = 16;
  cost.block_bytes = 8;
  return cost;
}

constexpr uint32_t kSlices = 16;  // of BandwidthBound's blocks

const LinkNumbers kSlow{100'000, 5'000, 30'000'000};

struct Cluster {
  explicit Cluster(int nodes) {
    for (int node = 0; node < nodes; ++node) {
      switches.emplace_back(node, nodes, Policy{ReferenceModel(), std::nullopt});
    }
  }
  // The leader's proposal reaches all, who have begun so much.
  std::optional<DecideNote> Propose(uint64_t begun_leader, uint64_t begun_others) {
    const ProposeNote proposal = switches[0].Propose(kSlow, begun_leader);
    std::optional<DecideNote> decision;
    for (size_t node = 1; node < switches.size(); ++node) {
      const auto answer = switches[node].OnPropose(proposal, begun_others);
      REQUIRE(answer.has_value());
      const auto decided = switches[0].OnAgree(static_cast<int>(node), *answer);
      if (decided.has_value()) decision = decided;
    }
    return decision;
  }
  std::vector<PolicySwitch> switches;
};

}  // namespace

TEST_CASE("a slower link shows in what operations take", "[link]") {
  LinkEstimate estimate;
  LinkModel model = ReferenceModel();
  const double truth =
      PredictSeconds(BandwidthBound(), ModelOf({30'000, 5'000, 30'000'000}), kSlices);
  for (int round = 0; round < 12; ++round) {
    for (size_t i = 0; i < LinkEstimate::kWindow; ++i) {
      // Half of them wait for others.
      const double late = i % 2 == 0 ? 0.5 : 0;
      estimate.AddOperation(OpKind::kAllReduce, BandwidthBound(), kSlices, model, truth + late);
    }
    model = ModelOf(estimate.numbers());
  }
  CHECK(static_cast<double>(estimate.numbers().bytes_per_s) == Approx(30e6).epsilon(0.05));
}

TEST_CASE("operations that take what their slices make of them change nothing", "[link]") {
  // A chain, where the number of slices decides.
  NetCost cost;
  cost.latencies = 3;
  cost.messages = 1;
  cost.link_bytes = cost.block_bytes = 24e6;
  cost.path_bytes = 72e6;
  const LinkModel model = ModelOf({30'000, 5'000, 1'000'000'000});
  for (const uint32_t slices : {16u, 64u}) {
    LinkEstimate estimate;
    estimate.AddProbe({30'000, 5'000, 1'000'000'000});
    for (size_t i = 0; i < 3 * LinkEstimate::kWindow; ++i) {
      estimate.AddOperation(OpKind::kAllReduce, cost, slices, model,
                            PredictSeconds(cost, model, slices));
    }
    CHECK(static_cast<double>(estimate.numbers().bytes_per_s) == Approx(1e9));
  }
}

TEST_CASE("short operations tell the latency and leave the rate alone", "[link]") {
  LinkEstimate estimate;
  estimate.AddProbe({30'000, 5'000, 1'000'000'000});
  for (int round = 0; round < 8; ++round) {
    const LinkModel model = ModelOf(estimate.numbers());
    for (size_t i = 0; i < LinkEstimate::kWindow; ++i) {
      estimate.AddOperation(OpKind::kAllReduce, LatencyBound(), 1, model, 2 * 140e-6);
    }
  }
  const LinkNumbers& numbers = estimate.numbers();
  CHECK(static_cast<double>(numbers.latency_ns + numbers.message_ns) == Approx(140e3).epsilon(0.1));
  CHECK(numbers.bytes_per_s == 1'000'000'000);
}

TEST_CASE("one slow operation changes nothing", "[link]") {
  LinkEstimate estimate;
  const LinkModel model = ReferenceModel();
  const double usual = PredictSeconds(BandwidthBound(), model, kSlices);
  for (size_t i = 0; i < LinkEstimate::kWindow; ++i) {
    estimate.AddOperation(OpKind::kAllReduce, BandwidthBound(), kSlices, model,
                          i == 3 ? 10 * usual : usual);
  }
  CHECK(static_cast<double>(estimate.numbers().bytes_per_s) == Approx(model.bytes_per_s));
}

TEST_CASE("operations that a node may end early, or knows no cost of, tell nothing", "[link]") {
  for (const OpKind kind : {OpKind::kBroadcast, OpKind::kReduce, OpKind::kGather, OpKind::kScatter,
                            OpKind::kAllToAllV}) {
    LinkEstimate estimate;
    for (size_t i = 0; i < 3 * LinkEstimate::kWindow; ++i) {
      estimate.AddOperation(kind, BandwidthBound(), kSlices, ReferenceModel(), 1e-6);
      estimate.AddOperation(kind, LatencyBound(), 1, ReferenceModel(), 1);
    }
    CHECK(estimate.numbers() == LinkNumbers());
  }
}

TEST_CASE("all nodes change at the same sequence number", "[policy]") {
  Cluster cluster(4);
  const auto decision = cluster.Propose(10, 12);
  REQUIRE(decision.has_value());
  CHECK(decision->yes);
  for (int node = 1; node < 4; ++node) cluster.switches[node].OnDecide(*decision);
  for (PolicySwitch& node : cluster.switches) {
    for (uint64_t sequence = 13; sequence < 60; ++sequence) {
      std::optional<DecideNote> decided;
      REQUIRE(node.Advance(sequence, &decided));
      const bool changed = sequence >= 10 + PolicySwitch::kAhead;
      CHECK(node.version() == (changed ? 1 : 0));
      CHECK(node.policy().model.bytes_per_s ==
            (changed ? ModelOf(kSlow) : ReferenceModel()).bytes_per_s);
    }
  }
}

TEST_CASE("one that has begun too much already stops the change for all", "[policy]") {
  Cluster cluster(3);
  const auto decision = cluster.Propose(10, 10 + PolicySwitch::kAhead);
  REQUIRE(decision.has_value());
  CHECK_FALSE(decision->yes);
  for (int node = 1; node < 3; ++node) cluster.switches[node].OnDecide(*decision);
  for (PolicySwitch& node : cluster.switches) {
    std::optional<DecideNote> decided;
    REQUIRE(node.Advance(100, &decided));
    CHECK(node.version() == 0);
  }
  CHECK(cluster.switches[0].MayPropose());
}

TEST_CASE("who gets there before the decision waits, and the leader decides", "[policy]") {
  Cluster cluster(2);
  const ProposeNote proposal = cluster.switches[0].Propose(kSlow, 0);
  const auto answer = cluster.switches[1].OnPropose(proposal, 0);
  REQUIRE(answer.has_value());
  std::optional<DecideNote> decided;
  CHECK(cluster.switches[1].Advance(proposal.from - 1, &decided));
  CHECK_FALSE(cluster.switches[1].Advance(proposal.from, &decided));
  CHECK_FALSE(decided.has_value());
  // The answer is still on its way.
  CHECK(cluster.switches[0].Advance(proposal.from, &decided));
  REQUIRE(decided.has_value());
  CHECK_FALSE(decided->yes);
  cluster.switches[1].OnDecide(*decided);
  std::optional<DecideNote> none;
  CHECK(cluster.switches[1].Advance(proposal.from, &none));
  CHECK(cluster.switches[1].version() == 0);
  CHECK_FALSE(cluster.switches[0].OnAgree(1, *answer).has_value());  // too late
}

TEST_CASE("notes that no proposal belongs to change nothing", "[policy]") {
  Cluster cluster(2);
  CHECK_FALSE(cluster.switches[0].OnPropose({1, 5, kSlow}, 0).has_value());
  CHECK_FALSE(cluster.switches[0].OnAgree(1, {1, true}).has_value());
  cluster.switches[1].OnDecide({1, true});
  REQUIRE(cluster.switches[1].OnPropose({1, 5, kSlow}, 0).has_value());
  CHECK_FALSE(cluster.switches[1].OnPropose({1, 5, kSlow}, 0).has_value());
  CHECK_FALSE(cluster.switches[1].OnPropose({2, 5, kSlow}, 0).has_value());
  cluster.switches[1].OnDecide({9, true});
  std::optional<DecideNote> decided;
  CHECK_FALSE(cluster.switches[1].Advance(5, &decided));
}
