// Predictions against closed formulas, and what must follow from what is told of a cluster.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "runtime/collectives/sim/local_phase.h"
#include "runtime/collectives/sim/predict.h"

namespace shunt::sim {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// No latency and no overhead: time is bytes / rate.
Cluster Bare(int nodes) {
  Cluster c;
  c.nodes = nodes;
  c.bytes_per_s = 1e9;
  return c;
}

Prediction Must(const Cluster& cluster, const Query& query) {
  REQUIRE(Check(cluster).ToString() == "OK");
  const absl::StatusOr<Prediction> p = Predict(cluster, query);
  REQUIRE(p.status().ToString() == "OK");
  return *p;
}

double Seconds(const Cluster& cluster, OpKind kind, uint64_t bytes, Algorithm algorithm,
               Method method) {
  const Prediction p = Must(cluster, {kind, bytes, algorithm, 0, method});
  CHECK(p.failure.empty());
  CHECK(p.method == method);
  return p.seconds;
}

Method AnyMethod() { return GENERATE(Method::kExecuted, Method::kComputed); }

TEST_CASE("a ring's time is its bytes divided by the rate") {
  const Method method = AnyMethod();
  const int nodes = GENERATE(2, 4, 7, 16);
  const uint64_t bytes = 64 * kMiB;
  const double s = static_cast<double>(bytes) / 1e9, n = nodes;
  const Cluster c = Bare(nodes);
  CHECK(Seconds(c, OpKind::kAllReduce, bytes, Algorithm::kRing, method) ==
        Approx(2 * (n - 1) / n * s).epsilon(0.02));
  CHECK(Seconds(c, OpKind::kAllGather, bytes, Algorithm::kRing, method) ==
        Approx((n - 1) / n * s).epsilon(0.02));
  CHECK(Seconds(c, OpKind::kReduceScatter, bytes, Algorithm::kRing, method) ==
        Approx((n - 1) / n * s).epsilon(0.02));
}

TEST_CASE("a chain's time is its bytes divided by the rate, and a slice for each further hop") {
  const Method method = AnyMethod();
  Cluster c = Bare(5);
  c.slice_bytes = kMiB;
  const double slices = 64;
  CHECK(Seconds(c, OpKind::kBroadcast, 64 * kMiB, Algorithm::kRing, method) ==
        Approx(64e-9 * kMiB * (1 + 3 / slices)).epsilon(0.02));
}

TEST_CASE("an exchange takes each node what it has for the others") {
  const Method method = AnyMethod();
  const Algorithm algorithm = GENERATE(Algorithm::kPairwise, Algorithm::kDirect);
  CHECK(Seconds(Bare(8), OpKind::kAllToAll, 64 * kMiB, algorithm, method) ==
        Approx(7. / 8 * 64e-9 * kMiB).epsilon(0.03));
}

TEST_CASE("latencies are paid for each round of few bytes") {
  const Method method = AnyMethod();
  Cluster c = Bare(8);
  c.latency_s = 100e-6;
  CHECK(Seconds(c, OpKind::kAllReduce, 8, Algorithm::kRing, method) ==
        Approx(14 * 100e-6).epsilon(0.02));
  CHECK(Seconds(c, OpKind::kAllReduce, 8, Algorithm::kRecursiveDoubling, method) ==
        Approx(3 * 100e-6).epsilon(0.02));
  c.call_s = 1e-3;
  CHECK(Seconds(c, OpKind::kBarrier, 0, Algorithm::kRecursiveDoubling, method) ==
        Approx(1.3e-3).epsilon(0.02));
}

TEST_CASE("twice the rate halves a time that bytes take, and not one that latency takes") {
  const Method method = AnyMethod();
  const Algorithm algorithm =
      GENERATE(Algorithm::kRing, Algorithm::kDoubleTree, Algorithm::kHalvingDoubling);
  Cluster slow = Bare(6);
  Cluster fast = slow;
  fast.bytes_per_s *= 2;
  CHECK(Seconds(slow, OpKind::kAllReduce, 16 * kMiB, algorithm, method) /
            Seconds(fast, OpKind::kAllReduce, 16 * kMiB, algorithm, method) ==
        Approx(2).epsilon(0.01));
  slow.latency_s = fast.latency_s = 1e-3;
  CHECK(Seconds(slow, OpKind::kAllReduce, 64, algorithm, method) /
            Seconds(fast, OpKind::kAllReduce, 64, algorithm, method) ==
        Approx(1).epsilon(0.01));
}

TEST_CASE("half of the efficiency is half of the rate") {
  const Method method = AnyMethod();
  Cluster c = Bare(4);
  const double whole = Seconds(c, OpKind::kAllReduce, kMiB, Algorithm::kRing, method);
  c.efficiency = 0.5;
  CHECK(Seconds(c, OpKind::kAllReduce, kMiB, Algorithm::kRing, method) ==
        Approx(2 * whole).epsilon(0.01));
}

TEST_CASE("a slow link is the most loaded one, and sets the pace") {
  const Method method = AnyMethod();
  Cluster c = Bare(6);
  const double before = Seconds(c, OpKind::kAllReduce, 16 * kMiB, Algorithm::kRing, method);
  c.links.push_back({.node = 4, .bytes_per_s = 0.25e9});
  const Prediction p = Must(c, {OpKind::kAllReduce, 16 * kMiB, Algorithm::kRing, 0, method});
  CHECK(absl::StartsWith(p.link, "node 4"));
  CHECK(p.link_busy > 0.9);
  CHECK(p.seconds == Approx(4 * before).epsilon(0.05));
  CHECK(p.link_bytes == Approx(10. / 6 * 16 * kMiB).epsilon(0.01));
}

TEST_CASE("the root of a direct broadcast has the most loaded link") {
  const Method method = AnyMethod();
  const Prediction p =
      Must(Bare(5), {OpKind::kBroadcast, 16 * kMiB, Algorithm::kDirect, 3, method});
  CHECK(p.link == "node 3 out");
  CHECK(p.links_alike == 0);
  CHECK(p.link_bytes == Approx(4. * 16 * kMiB).epsilon(0.01));
}

TEST_CASE("data is dealt over rails, and over those that are left") {
  const Method method = AnyMethod();
  Cluster c = Bare(4);
  const double one = Seconds(c, OpKind::kAllReduce, 64 * kMiB, Algorithm::kRing, method);
  c.rails = 4;
  CHECK(Seconds(c, OpKind::kAllReduce, 64 * kMiB, Algorithm::kRing, method) ==
        Approx(one / 4).epsilon(0.03));
  c.links.push_back({.node = 2, .rail = 1, .down = true});
  CHECK(Seconds(c, OpKind::kAllReduce, 64 * kMiB, Algorithm::kRing, method) ==
        Approx(one / 3).epsilon(0.03));
  c.links.push_back({.node = 1, .rail = 3, .bytes_per_s = 0.5e9});
  const Prediction p = Must(c, {OpKind::kAllReduce, 64 * kMiB, Algorithm::kRing, 0, method});
  CHECK(absl::StartsWith(p.link, "node 1 rail 3"));
  CHECK(p.seconds == Approx(2 * one / 3).epsilon(0.05));
}

TEST_CASE("bandwidths are those of nccl-tests") {
  const Prediction p = Must(Bare(4), {OpKind::kAllReduce, 64 * kMiB, Algorithm::kRing, 0});
  CHECK(p.algbw == Approx(64. * kMiB / p.seconds));
  CHECK(p.busbw == Approx(1.5 * p.algbw));
  CHECK(p.busbw == Approx(1e9).epsilon(0.02));  // what the link carries
  CHECK(BusFactor(OpKind::kAllToAll, 4) == 0.75);
  CHECK(BusFactor(OpKind::kBroadcast, 4) == 1);
}

TEST_CASE("GPUs of a domain share their rails, and NVLink's time is added to the network's") {
  const Method method = AnyMethod();
  Cluster c = Bare(4);
  c.gpus = 8;
  c.rails = 8;
  c.nvlink_bytes_per_s = 1e15;
  const double network = 1.5 * 64e-9 * kMiB / 8;
  const auto ring = [&] {
    return Seconds(c, OpKind::kAllReduce, 64 * kMiB, Algorithm::kRing, method);
  };
  CHECK(ring() == Approx(network).epsilon(0.03));
  // So slow that the network does not matter: 2 · 7/8 of the data.
  c.nvlink_bytes_per_s = 1e7;
  CHECK(ring() == Approx(2 * 7. / 8 * 64 * kMiB / 1e7).epsilon(0.03));
  const Prediction p = Must(c, {OpKind::kAllReduce, 64 * kMiB, Algorithm::kRing, 0, method});
  CHECK(p.link == "NVLink of GPU 0");
  CHECK(p.links_alike == 31);
}

TEST_CASE("domains may be several nodes, or parts of one") {
  Cluster c = Bare(4);
  c.gpus = 4;
  c.rails = 4;
  c.nvlink_bytes_per_s = 1e12;
  c.nvlink_domain = 8;
  REQUIRE(Check(c).ok());
  CHECK(c.units() == 2);
  CHECK(c.rails_of_unit() == 8);
  CHECK(RailName(c, 1, 5) == "node 3 rail 1");
  c.nvlink_domain = 2;
  REQUIRE(Check(c).ok());
  CHECK(c.units() == 8);
  CHECK(c.rails_of_unit() == 2);
  CHECK(RailName(c, 5, 1) == "node 2 rail 3");
  c.nvlink_domain = 16;
  REQUIRE(Check(c).ok());
  const Prediction p = Must(c, {OpKind::kAllReduce, 64 * kMiB, Algorithm::kRing, 0});
  CHECK(p.seconds == Approx(2 * 15. / 16 * 64e-12 * kMiB).epsilon(0.01));
  CHECK(p.link == "NVLink of GPU 0");
}

TEST_CASE("a node that dies is reported, and nobody hangs") {
  const Method method = AnyMethod();
  const Algorithm algorithm =
      GENERATE(Algorithm::kRing, Algorithm::kHalvingDoubling, Algorithm::kDoubleTree);
  Cluster c = Bare(6);
  c.latency_s = 10e-6;
  const double whole = Seconds(c, OpKind::kAllReduce, 64 * kMiB, algorithm, method);
  c.failures.push_back({.node = 3, .at_s = whole / 2});
  const Prediction p = Must(c, {OpKind::kAllReduce, 64 * kMiB, algorithm, 0, method});
  INFO(p.failure);
  CHECK(absl::StrContains(p.failure, method == Method::kExecuted ? "peer 3" : "node 3"));
  CHECK(p.seconds >= whole / 2);
  CHECK(p.seconds < whole / 2 + 1e-3);
  CHECK(p.busbw == 0);
  // After the end it changes nothing.
  c.failures[0].at_s = whole * 1.5;
  CHECK(Seconds(c, OpKind::kAllReduce, 64 * kMiB, algorithm, method) == Approx(whole));
}

TEST_CASE("a silent link is reported after the time that ends a connection") {
  const Method method = AnyMethod();
  Cluster c = Bare(4);
  c.lost_after_s = 0.5;
  c.failures.push_back({.what = Failure::What::kLink, .node = 1, .at_s = 1e-3});
  const Prediction p = Must(c, {OpKind::kAllReduce, 64 * kMiB, Algorithm::kRing, 0, method});
  INFO(p.failure);
  CHECK(absl::StrContains(p.failure, "silent"));
  CHECK(p.seconds == Approx(0.501).epsilon(0.01));
}

TEST_CASE("one operation passes through a full bucket, many wait for it to be filled") {
  Cluster c = Bare(4);
  c.burst_bytes = kMiB;
  c.burst_bytes_per_s = 1e11;
  const Query query{OpKind::kAllReduce, 64 << 10, Algorithm::kRing, 0, Method::kExecuted};
  const double sustained = 1.5 * (64 << 10) / 1e9;
  CHECK(Must(c, query).seconds < sustained / 10);
  c.operations = 64;
  CHECK(Must(c, query).seconds == Approx(sustained).epsilon(0.03));
}

TEST_CASE("what is executed and what is computed agree") {
  const int nodes = GENERATE(3, 8, 16);
  const uint64_t bytes = GENERATE(uint64_t{4096}, kMiB, 16 * kMiB);
  Cluster c = Bare(nodes);
  c.bytes_per_s = 1.25e9;
  c.latency_s = 10e-6;
  c.message_s = 1e-6;
  for (const OpKind kind :
       {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll}) {
    for (int i = 0; i < kAlgorithmCount; ++i) {
      const auto algorithm = static_cast<Algorithm>(i);
      if (!Supports(algorithm, kind) || algorithm == Algorithm::kAggregated) continue;
      INFO(Name(kind) << " by " << Name(algorithm) << " of " << bytes << " bytes, " << nodes);
      const double executed = Seconds(c, kind, bytes, algorithm, Method::kExecuted);
      const double computed = Seconds(c, kind, bytes, algorithm, Method::kComputed);
      // The trees' two halves get in each other's way, which is not computed.
      const double margin = algorithm == Algorithm::kDoubleTree ? 0.35 : 0.2;
      CHECK(computed == Approx(executed).epsilon(margin));
    }
  }
}

TEST_CASE("an aggregator that is told the sum has the most loaded link") {
  const Method method = AnyMethod();
  Cluster c = Bare(4);
  c.aggregators = 1;
  const Prediction p = Must(c, {OpKind::kAllReduce, 16 * kMiB, Algorithm::kAggregated, 0, method});
  CHECK(absl::StartsWith(p.link, "aggregator 0"));
  CHECK(p.link_bytes == Approx(4. * 16 * kMiB).epsilon(0.01));
}

TEST_CASE("80,000 ranks are predicted with bounded work") {
  Cluster c;
  c.nodes = 10'000;
  c.gpus = 8;
  c.rails = 8;
  c.bytes_per_s = 50e9;
  c.latency_s = 8e-6;
  c.nvlink_bytes_per_s = 450e9;
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (!Supports(algorithm, OpKind::kAllReduce) || algorithm == Algorithm::kAggregated) continue;
    INFO(Name(algorithm));
    const Prediction p = Must(c, {OpKind::kAllReduce, 1024 * kMiB, algorithm, 0});
    CHECK(p.method == Method::kComputed);
    CHECK(p.work <= 10'000 * 30);
    // No less than the closed bound: each rail carries 2 (n - 1) / n of its share.
    CHECK(p.seconds >= 2 * 1024. * kMiB / 8 / 50e9 * 0.99);
  }
  // A ring pays for its rounds.
  CHECK(Must(c, {OpKind::kAllReduce, 1024 * kMiB, Algorithm::kRing, 0}).seconds ==
        Approx(2 * 9999 * 8e-6 + 2 * 1024. * kMiB / 8 / 50e9).epsilon(0.1));
}

TEST_CASE("queries that make no sense are refused with words") {
  Cluster c = Bare(4);
  const auto words = [&](const Query& query) {
    return std::string(Predict(c, query).status().message());
  };
  CHECK(words({OpKind::kAllReduce, 8, Algorithm::kBruck, 0}) ==
        "all_reduce by bruck: there is no such plan, expected ring, double_tree, "
        "halving_doubling, recursive_doubling, pairwise, direct, aggregated");
  CHECK(words({OpKind::kBroadcast, 8, Algorithm::kRing, 4}) == "root 4, expected 0 to 3");
  c.nodes = 60000;
  CHECK(absl::StrContains(
      words({OpKind::kAllReduce, 8, Algorithm::kRing, 0, Method::kExecuted}),
      "all_reduce by ring of 60000 units in 1 slices is too much to be executed"));
}

TEST_CASE("clusters that make no sense are refused with words") {
  const auto words = [](auto change) {
    Cluster c = Bare(4);
    change(c);
    return std::string(Check(c).message());
  };
  CHECK(words([](Cluster& c) { c.nodes = 0; }) == "nodes is 0, expected 1 to 65535");
  CHECK(words([](Cluster& c) { c.bytes_per_s = 0; }) ==
        "rate is 0, expected at least 1 byte a second");
  CHECK(words([](Cluster& c) { c.latency_s = std::nan(""); }) ==
        "latency is nan, expected 0 s or more");
  CHECK(words([](Cluster& c) { c.gpus = 2; }) ==
        "nvlink_rate is 0, expected at least 1 byte a second for 2 GPUs of a domain");
  CHECK(words([](Cluster& c) { c.nvlink_domain = 3; }) ==
        "nvlink_domain is 3 GPUs, expected whole nodes of 1 GPUs that divide the 4 nodes, or "
        "equal parts of a node");
  CHECK(words([](Cluster& c) { c.links.push_back({.node = 4}); }) ==
        "link.node is 4, expected 0 to 3");
  CHECK(words([](Cluster& c) { c.links.push_back({.node = 1, .down = true}); }) ==
        "link.down leaves no rail that works on every node, expected at least one of 1");
  CHECK(words([](Cluster& c) { c.failures.push_back({.node = -1}); }) ==
        "failure.node is -1, expected 0 to 3");
}

}  // namespace
}  // namespace shunt::sim
