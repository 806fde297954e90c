// The prover must find what is wrong with broken plans.
#include <algorithm>
#include <string>
#include <vector>

#include "catch2/catch.hpp"
#include "runtime/collectives/plan/net_plan.h"
#include "runtime/collectives/plan/net_prove.h"

namespace shunt {
namespace {

using Kind = NetStep::Kind;
using Lists = std::vector<std::vector<NetStep>>;

Lists StepsOf(const NetSpec& spec) {
  Lists lists(spec.participants + spec.aggregators);
  for (int p = 0; p < static_cast<int>(lists.size()); ++p) {
    for (uint32_t i = 0; i < NetStepCount(spec, p); ++i) {
      lists[p].push_back(NetStepAt(spec, p, i));
    }
  }
  return lists;
}

// The prover's words; "" if it finds nothing.
std::string Fault(const NetSpec& spec, const Lists& lists) {
  const auto count = [&](int p) { return static_cast<uint32_t>(lists[p].size()); };
  const auto at = [&](int p, uint32_t i) { return lists[p][i]; };
  NetProver prover;
  const auto proof = prover.Prove(spec, {count, at});
  return proof.ok() ? "" : std::string(proof.status().message());
}

void ExpectFault(const NetSpec& spec, const Lists& lists, const std::string& words) {
  CHECK_THAT(Fault(spec, lists), Catch::Contains(words));
}

NetStep Step(Kind kind, int peer, uint32_t block, uint32_t round) {
  return {kind, false, peer, {block, 1, 1}, round};
}

const NetSpec kGather = {OpKind::kAllGather, Algorithm::kRing, 4};
const NetSpec kSum = {OpKind::kAllReduce, Algorithm::kRecursiveDoubling, 2};
const NetSpec kVectors = {OpKind::kAllReduce, Algorithm::kDirect, 3};

TEST_CASE("the prover takes a whole plan that was copied") {
  CHECK(Fault(kGather, StepsOf(kGather)) == "");
  CHECK(Fault(kSum, StepsOf(kSum)) == "");
  CHECK(Fault(kVectors, StepsOf(kVectors)) == "");
}

TEST_CASE("the prover finds sends and receives that do not pair up") {
  Lists lists = StepsOf(kGather);
  SECTION("a send too few") {
    lists[2].erase(lists[2].begin() + 4);
    ExpectFault(kGather, lists, "step 5 of participant 3 receives what nobody sends");
  }
  SECTION("a receive too few") {
    lists[2].erase(lists[2].begin() + 5);
    ExpectFault(kGather, lists, "step 4 of participant 1 sends what nobody receives");
  }
  SECTION("other blocks") {
    lists[2][3].blocks.first = 3;
    ExpectFault(kGather, lists, "step 3 of participant 2 expects other blocks");
  }
  SECTION("the same blocks in another order") {
    const NetSpec bruck = {OpKind::kAllGather, Algorithm::kBruck, 4};
    lists = StepsOf(bruck);
    REQUIRE(lists[0][3].blocks.count == 2);
    lists[0][3].blocks = {lists[0][3].blocks.first + 1, 2, 3};  // the second, then the first
    ExpectFault(bruck, lists, "step 3 of participant 0 expects other blocks");
  }
  SECTION("another round") {
    lists[2][3].round = 2;
    ExpectFault(kGather, lists, "is in round 2, its send in 1");
  }
}

TEST_CASE("the prover finds peers and blocks that do not exist") {
  Lists lists = StepsOf(kGather);
  SECTION("peer") {
    lists[1][0].peer = 4;
    ExpectFault(kGather, lists, "names peer 4");
    lists[1][0].peer = -1;
    ExpectFault(kGather, lists, "names peer -1");
    lists[1][0].peer = 1;
    ExpectFault(kGather, lists, "names peer 1");
  }
  SECTION("number of blocks") {
    lists[1][0].blocks.count = 0;
    ExpectFault(kGather, lists, "has 0 blocks");
    lists[1][0].blocks.count = 5;
    ExpectFault(kGather, lists, "has 5 blocks");
  }
  SECTION("a block twice") {
    lists[1][0].blocks = {1, 2, 4};
    ExpectFault(kGather, lists, "names block 1 of 4 twice");
  }
}

TEST_CASE("the prover finds a block that its sender does not hold") {
  Lists lists = StepsOf(kGather);
  lists[2][0].blocks.first = lists[3][1].blocks.first = 0;
  ExpectFault(kGather, lists, "step 0 of participant 2 sends block 0, not held");
}

TEST_CASE("the prover finds a round that carries on what is not there yet") {
  Lists lists = StepsOf(kGather);
  for (auto& list : lists) {
    for (NetStep& step : list) step.round = 0;
  }
  ExpectFault(kGather, lists, "is there only in round 1");
}

TEST_CASE("the prover finds a step that waits for a later round") {
  // 0 sends its block in round 1, and has it replaced in round 0 by the same list.
  const NetSpec spec = {OpKind::kAllReduce, Algorithm::kRecursiveDoubling, 2};
  const Lists lists = {{Step(Kind::kSend, 1, 0, 1), Step(Kind::kRecv, 1, 0, 0)},
                       {Step(Kind::kSend, 0, 0, 0), Step(Kind::kRecvReduce, 0, 0, 1)}};
  ExpectFault(spec, lists, "waits for a step of a later round than its own, 0");
}

TEST_CASE("the prover finds a missing output") {
  Lists lists = StepsOf(kGather);
  lists[1].erase(lists[1].begin() + 4);  // 1 to 2, the last block
  lists[2].erase(lists[2].begin() + 5);
  ExpectFault(kGather, lists, "participant 2 lacks block 3");
}

TEST_CASE("the prover finds contributions that are lost or come twice") {
  SECTION("overwritten") {
    const NetSpec reduce = {OpKind::kReduce, Algorithm::kRing, 3};
    Lists lists = StepsOf(reduce);
    lists[1][0].kind = Kind::kRecv;
    ExpectFault(reduce, lists, "participant 0 has block 0 with 2 of 3 contributions");
  }
  SECTION("combined twice") {
    const NetSpec reduce = {OpKind::kReduce, Algorithm::kDirect, 3};
    Lists lists = StepsOf(reduce);
    lists[2].push_back(lists[2][0]);
    lists[0].push_back(lists[0][1]);
    REQUIRE(lists[0][1].peer == 2);
    ExpectFault(reduce, lists, "step 2 of participant 0 combines a contribution to block 0 twice");
  }
  SECTION("a vector left out") {
    Lists lists = StepsOf(kVectors);
    lists[1].back().blocks.count = 2;
    ExpectFault(kVectors, lists, "participant 1 has block 0 with 2 of 3 contributions");
    lists[1].pop_back();
    ExpectFault(kVectors, lists, "participant 1 lacks block 0");
  }
}

TEST_CASE("the prover finds participants that combine in different orders") {
  SECTION("left and right") {
    Lists lists = StepsOf(kSum);
    lists[0][1].peer_first = lists[1][1].peer_first = false;
    ExpectFault(kSum, lists, "participants 0 and 1 combine block 0 in different orders");
  }
  SECTION("vectors") {
    Lists lists = StepsOf(kVectors);
    lists[2].back().blocks.first = 1;
    ExpectFault(kVectors, lists, "participants 0 and 2 combine block 0 in different orders");
  }
}

TEST_CASE("the prover finds circles of waiting steps") {
  SECTION("each reduces before it sends") {
    Lists lists = StepsOf(kSum);
    for (auto& list : lists) std::swap(list[0], list[1]);
    ExpectFault(kSum, lists, "wait for each other in a circle");
  }
  SECTION("each receives into the block that it is still sending") {
    Lists lists = StepsOf(kSum);
    for (auto& list : lists) list[1].kind = Kind::kRecv;
    ExpectFault(kSum, lists, "wait for each other in a circle");
  }
  SECTION("arrivals that need room for two of one block") {
    // Everybody sends its block to all, and takes the others' in rank order: 2 would have to take
    // from 0 while it combines nothing yet, because it has not sent to 1, who takes 0's first.
    const NetSpec spec = {OpKind::kAllReduce, Algorithm::kRecursiveDoubling, 3};
    Lists lists(3);
    for (int p = 0; p < 3; ++p) {
      for (int q = 0; q < 3; ++q) {
        if (q != p) lists[p].push_back(Step(Kind::kSend, q, 0, 0));
      }
      for (int q = 0; q < 3; ++q) {
        if (q != p) lists[p].push_back(Step(Kind::kRecvReduce, q, 0, 0));
      }
    }
    ExpectFault(spec, lists, "wait for each other in a circle");
  }
}

TEST_CASE("the prover finds combinations where nothing is to be combined") {
  Lists lists = StepsOf(kGather);
  lists[2][1].kind = Kind::kRecvReduce;
  ExpectFault(kGather, lists, "combines, but the operation only moves");

  lists = StepsOf(kSum);
  lists[0].push_back({Kind::kCombine, false, 0, {0, 1, 1}, 1});
  ExpectFault(kSum, lists, "blocks are parts of one");

  lists = StepsOf(kVectors);
  lists[0][1].kind = Kind::kRecvReduce;
  ExpectFault(kVectors, lists, "step 1 of participant 0 reduces into block 1, not held");
}

TEST_CASE("the prover lets only aggregators take a contribution for a block they lack") {
  const NetSpec spec = {OpKind::kAllReduce, Algorithm::kAggregated, 3, 0, 2};
  Lists lists = StepsOf(spec);
  CHECK(Fault(spec, lists) == "");
  for (auto& list : lists) {  // hands out before it has any
    std::reverse(list.begin(), list.end());
    for (NetStep& step : list) step.round = 0;
  }
  ExpectFault(spec, lists, "sends block 0, not held");
}

}  // namespace
}  // namespace shunt
