#include "runtime/exchange/choice.h"

#include <catch2/catch.hpp>

using namespace shunt;
using namespace shunt::exchange;

namespace {

constexpr LinkModel kModel{.latency_s = 30e-6,
                           .message_overhead_s = 5e-6,
                           .bytes_per_s = 1e9,
                           .reduce_bytes_per_s = 8e9,
                           .incast_factor = 1.5,
                           .slices_max = kSlicesMax,
                           .slice_bytes_min = kSliceBytes};

Shape Choose(OpKind kind, uint64_t count, const NodeMap& map) {
  CollectiveSpec call{};
  call.kind = kind;
  call.dtype = DataType::kFloat32;
  call.count = count;
  return ChooseShape(call, map, kModel);
}

}  // namespace

TEST_CASE("few bytes go by few rounds, many by few bytes", "[choice]") {
  const NodeMap map = *NodeMap::Make({0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(Choose(OpKind::kAllReduce, 2, map).net.algorithm == Algorithm::kRecursiveDoubling);
  const Shape large = Choose(OpKind::kAllReduce, 64 << 20, map);
  CHECK(CostOf(large.net, 256 << 20).link_bytes < 2 * (256 << 20));
  CHECK(large.slices > 16);
  CHECK(large.slices <= kSlicesMax);
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
