#include "runtime/collectives/plan/net_plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch.hpp"
#include "runtime/collectives/plan/net_prove.h"

namespace shunt {
namespace {

using Kind = NetStep::Kind;

NetProof Prove(const NetSpec& spec) {
  NetProver prover;
  const auto proof = prover.Prove(spec);
  INFO(proof.status().ToString());
  REQUIRE(proof.ok());
  return *proof;
}

TEST_CASE("algorithm names read back") {
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto a = static_cast<Algorithm>(i);
    REQUIRE(AlgorithmOf(Name(a)).ok());
    CHECK(*AlgorithmOf(Name(a)) == a);
  }
  CHECK(Name(Algorithm::kRing) == "ring");
  CHECK(Name(Algorithm::kPatBounded) == "pat_bounded");
  CHECK(Name(static_cast<Algorithm>(kAlgorithmCount)) == "unknown");
  CHECK(AlgorithmOf("rign").status().message() ==
        "algorithm \"rign\", expected one of ring, double_tree, halving_doubling, "
        "recursive_doubling, bruck, pat, pairwise, direct, aggregated, binomial, pat_bounded");
  CHECK_FALSE(AlgorithmOf("").ok());
}

std::string Message(const NetSpec& spec) {
  const absl::Status status = ValidateNetSpec(spec);
  CHECK((status.ok() || status.code() == absl::StatusCode::kInvalidArgument));
  return std::string(status.message());
}

TEST_CASE("validation names the plan, the value seen and the value expected") {
  CHECK(Message({OpKind::kBroadcast, Algorithm::kRing, 4, 3}) == "");
  CHECK(Message({OpKind::kAllReduce, Algorithm::kRing, 4, 9}) == "");  // has no root
  CHECK(Message({OpKind::kBroadcast, Algorithm::kRing, 4, 4}) ==
        "broadcast by ring: root 4, expected 0 to 3");
  CHECK(Message({OpKind::kBroadcast, Algorithm::kRing, 4, -1}) ==
        "broadcast by ring: root -1, expected 0 to 3");
  CHECK(Message({OpKind::kAllReduce, Algorithm::kRing, 0}) ==
        "all_reduce by ring: 0 participants, expected 1 to 65535");
  CHECK(Message({OpKind::kAllReduce, Algorithm::kRing, 65536}) ==
        "all_reduce by ring: 65536 participants, expected 1 to 65535");
  CHECK(Message({OpKind::kGather, Algorithm::kRing, 4}) ==
        "gather by ring: there is no such plan, expected pairwise, direct, binomial");
  CHECK(Message({OpKind::kSend, Algorithm::kRing, 2}) ==
        "send by ring: there is no such plan, expected another operation");
  CHECK(Message({OpKind::kAllReduce, Algorithm::kAggregated, 4}) ==
        "all_reduce by aggregated: 0 aggregators, expected 1 to 65535");
  CHECK(Message({OpKind::kAllReduce, Algorithm::kRing, 4, 0, 1}) ==
        "all_reduce by ring: 1 aggregators, expected 0");
  CHECK(Message({static_cast<OpKind>(12), Algorithm::kRing, 4}) ==
        "unknown operation 12, expected 0 to 11");
  CHECK(Message({OpKind::kAllReduce, static_cast<Algorithm>(11), 4}) ==
        "all_reduce by unknown: algorithm 11, expected 0 to 10");
}

TEST_CASE("the blocks of a vector are even and cover it") {
  for (const NetSpec& spec : {NetSpec{OpKind::kAllReduce, Algorithm::kRing, 7},
                              NetSpec{OpKind::kAllReduce, Algorithm::kHalvingDoubling, 7},
                              NetSpec{OpKind::kBroadcast, Algorithm::kDoubleTree, 7},
                              NetSpec{OpKind::kReduce, Algorithm::kAggregated, 7, 0, 3},
                              NetSpec{OpKind::kAllReduce, Algorithm::kRing, 1}}) {
    for (uint64_t elements :
         {uint64_t{0}, uint64_t{1}, uint64_t{3}, uint64_t{700}, uint64_t{705}, ~uint64_t{0}}) {
      uint64_t next = 0;
      for (uint32_t b = 0; b < BlockCount(spec); ++b) {
        const BlockRange range = BlockRangeOf(spec, b, elements);
        CHECK(range.first == next);
        CHECK(range.count - elements / BlockCount(spec) <= 1);
        next += range.count;
      }
      CHECK(next == elements);
    }
  }
}

TEST_CASE("each block of a one-hop all_reduce is a whole vector") {
  const NetSpec spec = {OpKind::kAllReduce, Algorithm::kDirect, 5};
  CHECK(BlockCount(spec) == 5);
  CHECK(BlockRangeOf(spec, 3, 100).first == 0);
  CHECK(BlockRangeOf(spec, 3, 100).count == 100);
}

TEST_CASE("one participant alone has nothing to do") {
  for (int k = 0; k < kOpKindCount; ++k) {
    for (int a = 0; a < kAlgorithmCount; ++a) {
      const auto kind = static_cast<OpKind>(k);
      const auto algorithm = static_cast<Algorithm>(a);
      if (!Supports(algorithm, kind)) continue;
      const NetSpec spec = {kind, algorithm, 1, 0, algorithm == Algorithm::kAggregated ? 2 : 0};
      CHECK(NetStepCount(spec, 0) == 0);
    }
  }
}

TEST_CASE("the largest plans do not overflow") {
  const int n = kParticipantsMax;
  const NetSpec exchange = {OpKind::kAllToAll, Algorithm::kPairwise, n};
  CHECK(BlockCount(exchange) == 4294836225u);
  CHECK(NetStepCount(exchange, n - 1) == 131068);
  CHECK(NetStepAt(exchange, n - 1, 131066).blocks.first == 4294836224u - n + 1);
  CHECK(NetStepAt(exchange, n - 1, 131067).blocks.first == (n - 2u) * n + n - 1);
  for (const NetSpec& spec : {NetSpec{OpKind::kAllReduce, Algorithm::kRing, n},
                              NetSpec{OpKind::kAllGather, Algorithm::kBruck, n},
                              NetSpec{OpKind::kAllToAll, Algorithm::kBruck, n},
                              NetSpec{OpKind::kReduceScatter, Algorithm::kPat, n},
                              NetSpec{OpKind::kReduceScatter, Algorithm::kPatBounded, n},
                              NetSpec{OpKind::kAllReduce, Algorithm::kHalvingDoubling, n},
                              NetSpec{OpKind::kBroadcast, Algorithm::kDoubleTree, n, n - 1},
                              NetSpec{OpKind::kGather, Algorithm::kBinomial, n, n - 1}}) {
    for (int p : {0, 1, n / 2, n - 1}) {
      const uint32_t count = NetStepCount(spec, p);
      for (uint32_t i : {0u, count / 2, count - 1}) {
        const NetStep step = NetStepAt(spec, p, i);
        CHECK(step.peer >= 0);
        CHECK(step.peer < n);
        uint32_t largest = 0, blocks = 0;
        ForEachBlock(spec, p, step, [&](uint32_t block) {
          largest = std::max(largest, block);
          ++blocks;
        });
        CHECK(largest < BlockCount(spec));
        CHECK(blocks == step.blocks.count);
      }
    }
  }
}

TEST_CASE("a ring all_reduce of four passes these blocks") {
  const NetSpec spec = {OpKind::kAllReduce, Algorithm::kRing, 4};
  const uint32_t sent_by_1[] = {0, 3, 2, 1, 0, 3};
  REQUIRE(NetStepCount(spec, 1) == 12);
  for (uint32_t t = 0; t < 6; ++t) {
    const NetStep send = NetStepAt(spec, 1, 2 * t);
    CHECK(send.kind == Kind::kSend);
    CHECK(send.peer == 2);
    CHECK(send.blocks.first == sent_by_1[t]);
    const NetStep recv = NetStepAt(spec, 1, 2 * t + 1);
    CHECK(recv.kind == (t < 3 ? Kind::kRecvReduce : Kind::kRecv));
    CHECK(recv.peer == 0);
    CHECK(recv.blocks.first == (sent_by_1[t] + 3) % 4);
  }
}

TEST_CASE("latencies in a row are as few as the algorithms promise") {
  CHECK(Prove({OpKind::kAllReduce, Algorithm::kRing, 64}).depth == 126);
  CHECK(Prove({OpKind::kAllReduce, Algorithm::kRecursiveDoubling, 64}).depth == 6);
  CHECK(Prove({OpKind::kAllReduce, Algorithm::kRecursiveDoubling, 127}).depth == 8);
  CHECK(Prove({OpKind::kAllReduce, Algorithm::kHalvingDoubling, 64}).depth == 12);
  CHECK(Prove({OpKind::kAllReduce, Algorithm::kDoubleTree, 64}).depth == 12);
  CHECK(Prove({OpKind::kAllReduce, Algorithm::kPairwise, 64}).depth == 2);
  CHECK(Prove({OpKind::kAllReduce, Algorithm::kDirect, 64}).depth == 1);
  CHECK(Prove({OpKind::kAllReduce, Algorithm::kAggregated, 64, 0, 3}).depth == 2);
  CHECK(Prove({OpKind::kAllGather, Algorithm::kBruck, 64}).depth == 6);
  CHECK(Prove({OpKind::kAllToAll, Algorithm::kBruck, 64}).depth == 6);
  CHECK(Prove({OpKind::kReduceScatter, Algorithm::kPat, 64}).depth == 6);
  CHECK(Prove({OpKind::kReduceScatter, Algorithm::kPatBounded, 64}).depth == 6);
  CHECK(Prove({OpKind::kBroadcast, Algorithm::kBinomial, 64, 5}).depth == 6);
  CHECK(Prove({OpKind::kBroadcast, Algorithm::kRing, 64, 5}).depth == 63);
  CHECK(Prove({OpKind::kAllToAll, Algorithm::kPairwise, 64}).depth == 1);
}

TEST_CASE("a bounded PAT reduce_scatter of 64 has three sums open") {
  const NetProof bounded = Prove({OpKind::kReduceScatter, Algorithm::kPatBounded, 64});
  CHECK(bounded.extra_blocks_max == 3);
  CHECK(bounded.participant.sent_messages == 63);
  const NetProof simple = Prove({OpKind::kReduceScatter, Algorithm::kPat, 64});
  CHECK(simple.extra_blocks_max == 31);
  CHECK(simple.participant.sent_messages == 6);
  CHECK(simple.participant.sent_blocks == bounded.participant.sent_blocks);
}

TEST_CASE("plans whose outputs are all blocks need no other") {
  for (int n : {2, 7, 64}) {
    CHECK(Prove({OpKind::kAllReduce, Algorithm::kRing, n}).extra_blocks_max == 0);
    CHECK(Prove({OpKind::kAllReduce, Algorithm::kRecursiveDoubling, n}).extra_blocks_max == 0);
    CHECK(Prove({OpKind::kAllGather, Algorithm::kPat, n}).extra_blocks_max == 0);
    CHECK(Prove({OpKind::kAllToAll, Algorithm::kPairwise, n}).extra_blocks_max == 0);
    CHECK(Prove({OpKind::kAllReduce, Algorithm::kDirect, n}).extra_blocks_max == uint32_t(n - 1));
    CHECK(Prove({OpKind::kReduceScatter, Algorithm::kPairwise, n}).extra_blocks_max == 0);
  }
}

TEST_CASE("aggregated plans carry the vector once over each host's link") {
  const NetProof proof = Prove({OpKind::kAllReduce, Algorithm::kAggregated, 64, 0, 4});
  CHECK(proof.participant.sent_blocks == 4);  // of four
  CHECK(proof.participant.received_blocks == 4);
  CHECK(proof.aggregator.received_blocks == 64);
  CHECK(proof.aggregator.sent_blocks == 64);
  CHECK(proof.aggregator.reduced_blocks == 63);
}

TEST_CASE("aggregators add in rank order") {
  const NetSpec spec = {OpKind::kAllReduce, Algorithm::kAggregated, 9, 0, 2};
  for (int a = 9; a < 11; ++a) {
    for (int p = 0; p < 9; ++p) {
      const NetStep step = NetStepAt(spec, a, p);
      CHECK(step.kind == Kind::kRecvReduce);
      CHECK(step.peer == p);
      CHECK_FALSE(step.peer_first);
    }
  }
}

// Trees (blocks) in which the participant sends a block on that it has received.
int TreesInside(const NetSpec& spec, int p) {
  std::set<uint32_t> received, inside;
  for (uint32_t i = 0; i < NetStepCount(spec, p); ++i) {
    const NetStep step = NetStepAt(spec, p, i);
    if (step.kind != Kind::kSend) {
      received.insert(step.blocks.first);
    } else if (received.count(step.blocks.first) != 0) {
      inside.insert(step.blocks.first);
    }
  }
  return static_cast<int>(inside.size());
}

TEST_CASE("no participant is inside both trees, and each link carries the vector once") {
  for (OpKind kind : {OpKind::kBroadcast, OpKind::kReduce}) {
    for (int n = 2; n <= 130; ++n) {
      const NetSpec spec = {kind, Algorithm::kDoubleTree, n, n / 2};
      int most = 0;
      for (int p = 0; p < n; ++p) most = std::max(most, TreesInside(spec, p));
      const NetProof proof = Prove(spec);
      if (most > 1) FAIL(Name(kind) << " of " << n << ": inside " << most);
      CHECK(proof.participant.sent_blocks <= 2);  // halves
      CHECK(proof.participant.received_blocks <= 2);
    }
  }
}

TEST_CASE("in a pairwise exchange no receiver has two senders in one round") {
  for (OpKind kind : {OpKind::kAllToAll, OpKind::kAllReduce, OpKind::kGather}) {
    const NetSpec spec = {kind, Algorithm::kPairwise, 13, 4};
    std::set<std::pair<uint32_t, int>> seen;  // round, receiver
    for (int p = 0; p < 13; ++p) {
      for (uint32_t i = 0; i < NetStepCount(spec, p); ++i) {
        const NetStep step = NetStepAt(spec, p, i);
        if (step.kind == Kind::kSend) CHECK(seen.insert({step.round, step.peer}).second);
      }
    }
  }
}

TEST_CASE("a Bruck all_to_all holds one block of each distance") {
  const NetSpec spec = {OpKind::kAllToAll, Algorithm::kBruck, 11};
  for (int p = 0; p < 11; ++p) {
    std::vector<uint32_t> slots;  // by distance
    for (uint32_t d = 0; d < 11; ++d) slots.push_back(p * 11 + (p + d) % 11);
    for (uint32_t i = 0; i < NetStepCount(spec, p); ++i) {
      const NetStep step = NetStepAt(spec, p, i);
      ForEachBlock(spec, p, step, [&](uint32_t block) {
        const uint32_t distance = (block % 11 + 11 - block / 11) % 11;
        if (step.kind == Kind::kSend) CHECK(slots[distance] == block);
        if (step.kind == Kind::kRecv) slots[distance] = block;
      });
    }
    for (uint32_t d = 0; d < 11; ++d) CHECK(slots[d] == (p + 11 - d) % 11 * 11 + p);
  }
}

}  // namespace
}  // namespace shunt
