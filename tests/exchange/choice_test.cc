#include "runtime/exchange/choice.h"

#include <catch2/catch.hpp>

using namespace shunt;
using namespace shunt::exchange;

namespace {

Shape Choose(OpKind kind, uint64_t count, const NodeMap& map) {
  CollectiveSpec call{};
  call.kind = kind;
  call.dtype = DataType::kFloat32;
  call.count = count;
  return ChooseShape(call, map, {ReferenceModel(), std::nullopt});
}

}  // namespace

TEST_CASE("few bytes go by few rounds, many by few bytes", "[choice]") {
  const NodeMap map = *NodeMap::Make({0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(CostOf(Choose(OpKind::kAllReduce, 2, map).net, 8).latencies <= 3);
  const Shape large = Choose(OpKind::kAllReduce, 64 << 20, map);
  CHECK(CostOf(large.net, 256 << 20).link_bytes < 2 * (256 << 20));
  CHECK(large.slices > 16);
}

TEST_CASE("every kind has a plan that fits the map", "[choice]") {
  const NodeMap map = *NodeMap::Make({0, 1, 1, 2, 0});
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    const auto k = static_cast<OpKind>(kind);
    if (k == OpKind::kSend || k == OpKind::kRecv) continue;
    for (const uint64_t count : {0, 1, 1000, 10'000'000}) {
      INFO(Name(k) << " count " << count);
      const Shape shape = Choose(k, count, map);
      CHECK(shape.net.participants == 3);
      CHECK(shape.slices >= 1);
      CHECK(ValidateNetSpec(shape.net).ok());
    }
  }
}

TEST_CASE("a wanted algorithm is taken where the kind has it", "[choice]") {
  const NodeMap map = *NodeMap::Make({0, 1, 2, 3});
  CollectiveSpec call{};
  call.dtype = DataType::kFloat32;
  call.count = 2;
  const Policy ring{ReferenceModel(), Algorithm::kRing};
  call.kind = OpKind::kAllReduce;
  CHECK(ChooseShape(call, map, ring).net.algorithm == Algorithm::kRing);
  call.kind = OpKind::kAllToAll;
  CHECK(ChooseShape(call, map, ring).net.algorithm != Algorithm::kRing);
}

TEST_CASE("what is chosen is the first of the candidates", "[choice]") {
  const NodeMap map = *NodeMap::Make({0, 1, 2, 3});
  const LinkModel slow = ModelOf({100'000, 5'000, 30'000'000});
  CollectiveSpec call{};
  call.kind = OpKind::kAllReduce;
  call.dtype = DataType::kFloat32;
  for (call.count = 2; call.count < 20'000'000; call.count *= 7) {
    const std::vector<Candidate> candidates = Candidates(call, map, {slow, std::nullopt});
    REQUIRE(candidates.size() >= 4);
    for (size_t i = 1; i < candidates.size(); ++i) {
      CHECK(candidates[i - 1].seconds <= candidates[i].seconds);
    }
    CHECK(ChooseShape(call, map, {slow, std::nullopt}).net.algorithm ==
          candidates[0].net.algorithm);
  }
}

TEST_CASE("what is predicted is the shape that would run", "[choice]") {
  const NodeMap map = *NodeMap::Make({0, 1, 2, 3, 4, 5, 6, 7});
  CollectiveSpec call{};
  call.dtype = DataType::kFloat32;
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kAllToAll}) {
    call.kind = kind;
    for (call.count = 1000; call.count < 100'000'000; call.count *= 10) {
      for (const Candidate& c : Candidates(call, map, {ReferenceModel(), std::nullopt, 8})) {
        INFO(Name(kind) << " by " << Name(c.net.algorithm) << ", count " << call.count);
        const Policy policy{ReferenceModel(), c.net.algorithm, 8};
        const Shape shape = ChooseShape(call, map, policy);
        CHECK(c.slices == shape.slices);
        LinkModel model = ReferenceModel();
        if (c.net.algorithm == Algorithm::kAggregated) model.incast_factor = 1;
        const NetCost cost = CostOf(shape.net, BytesOf(call, map.world()));
        CHECK(c.seconds == PredictSeconds(cost, model, shape.slices));
      }
    }
  }
}

TEST_CASE("of equal times the lowest number is chosen", "[choice]") {
  const NodeMap alone = *NodeMap::Make({0, 0});  // nothing to do: all take none
  CollectiveSpec call{};
  call.kind = OpKind::kAllReduce;
  call.dtype = DataType::kFloat32;
  call.count = 1000;
  const std::vector<Candidate> candidates =
      Candidates(call, alone, {ReferenceModel(), std::nullopt});
  REQUIRE(candidates.size() >= 2);
  for (size_t i = 1; i < candidates.size(); ++i) {
    CHECK(candidates[i].seconds == candidates[0].seconds);
    CHECK(candidates[i - 1].net.algorithm < candidates[i].net.algorithm);
  }
}

TEST_CASE("aggregators are chosen where there are some and they are the fastest", "[choice]") {
  const NodeMap map = *NodeMap::Make({0, 1, 2, 3});
  const LinkModel slow = ModelOf({100'000, 5'000, 30'000'000});
  CollectiveSpec call{};
  call.kind = OpKind::kAllReduce;
  call.dtype = DataType::kFloat32;
  call.count = 4 << 20;
  CHECK(ChooseShape(call, map, {slow, std::nullopt, 4}).net.algorithm == Algorithm::kAggregated);
  CHECK(ChooseShape(call, map, {slow, std::nullopt, 0}).net.algorithm != Algorithm::kAggregated);
  // One link cannot carry what four send.
  CHECK(ChooseShape(call, map, {slow, std::nullopt, 1}).net.algorithm != Algorithm::kAggregated);
  CHECK(ChooseShape(call, map, {slow, Algorithm::kAggregated, 0}).net.aggregators == 0);
  call.kind = OpKind::kReduceScatter;
  CHECK(ChooseShape(call, map, {slow, Algorithm::kAggregated, 4}).net.aggregators == 0);
}

TEST_CASE("through aggregators a slice is as short as the link is slow", "[choice]") {
  const NodeMap map = *NodeMap::Make({0, 1, 2, 3});
  CollectiveSpec call{};
  call.kind = OpKind::kAllReduce;
  call.dtype = DataType::kFloat32;
  call.count = 4 << 20;
  const auto slices = [&](uint64_t bytes_per_s) {
    const LinkModel model = ModelOf({100'000, 5'000, bytes_per_s});
    return ChooseShape(call, map, {model, Algorithm::kAggregated, 4}).slices;
  };
  CHECK(slices(1'000'000) == 256);
  CHECK(slices(30'000'000) == 256);
  CHECK(slices(131'072'000) == 64);
  CHECK(slices(10'000'000'000) == 16);
}
