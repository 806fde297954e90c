#include "bench/harness/layout.h"

#include <catch2/catch.hpp>

namespace shunt::bench {
namespace {

Problem Of(Operation op, int ranks, uint64_t bytes = 1200) {
  return MakeProblem(op, DataType::kFloat32, ranks, bytes);
}

TEST_CASE("every node has ranks, in blocks that differ by one at most") {
  for (int nodes = 1; nodes <= 9; ++nodes) {
    for (int ranks = nodes; ranks <= 64; ++ranks) {
      const Layout layout{ranks, nodes};
      int total = 0;
      for (int n = 0; n < nodes; ++n) {
        total += layout.RanksOn(n);
        REQUIRE(layout.RanksOn(n) >= ranks / nodes);
        REQUIRE(layout.RanksOn(n) <= (ranks + nodes - 1) / nodes);
      }
      REQUIRE(total == ranks);
      for (int r = 1; r < ranks; ++r) REQUIRE(layout.NodeOf(r) >= layout.NodeOf(r - 1));
      if (ranks % nodes == 0) {
        for (int r = 0; r < ranks; ++r) REQUIRE(layout.NodeOf(r) == r / (ranks / nodes));
      }
    }
  }
}

TEST_CASE("one node has no link") {
  for (int op = 0; op < kOperationCount; ++op) {
    REQUIRE(LinkBytes(Of(static_cast<Operation>(op), 4), {4, 1}) == 0);
  }
}

TEST_CASE("the busiest link carries what leaves or reaches its node") {
  const Layout two_each{8, 4};
  REQUIRE(LinkBytes(Of(Operation::kAllReduce, 8), two_each) == Approx(1800));
  REQUIRE(LinkBytes(Of(Operation::kBroadcast, 8), two_each) == Approx(1200));
  REQUIRE(LinkBytes(Of(Operation::kAllGather, 8, 3200), two_each) == Approx(2400));
  REQUIRE(LinkBytes(Of(Operation::kReduceScatter, 8, 3200), two_each) == Approx(2400));
  REQUIRE(LinkBytes(Of(Operation::kAllToAll, 8, 3200), two_each) == Approx(4800));
  REQUIRE(LinkBytes(Of(Operation::kGather, 8, 3200), two_each) == Approx(2400));
  REQUIRE(LinkBytes(Of(Operation::kBarrier, 8), two_each) == 0);
}

TEST_CASE("an uneven layout's busiest node is the one with fewer ranks, or more in all_to_all") {
  const Layout uneven{3, 2};  // ranks 0 and 1, rank 2
  REQUIRE(uneven.RanksOn(0) == 2);
  REQUIRE(LinkBytes(Of(Operation::kAllGather, 3), uneven) == Approx(800));
  REQUIRE(LinkBytes(Of(Operation::kAllToAll, 3), uneven) == Approx(800));  // 2·1/3 and 1·2/3
  Problem gather = Of(Operation::kGather, 3);
  REQUIRE(LinkBytes(gather, uneven) == Approx(400));
  gather.root = 2;
  REQUIRE(LinkBytes(gather, uneven) == Approx(800));
}

}  // namespace
}  // namespace shunt::bench
