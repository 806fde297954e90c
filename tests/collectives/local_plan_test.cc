#include "runtime/collectives/plan/local_plan.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "catch2/catch.hpp"
#include "runtime/collectives/plan/prove.h"

namespace shunt {
namespace {

constexpr OpKind kEveryKind[] = {OpKind::kBarrier,   OpKind::kAllReduce, OpKind::kReduce,
                                 OpKind::kBroadcast, OpKind::kAllGather, OpKind::kReduceScatter,
                                 OpKind::kAllToAll,  OpKind::kAllToAllV, OpKind::kGather,
                                 OpKind::kScatter,   OpKind::kSend,      OpKind::kRecv};

CollectiveSpec Spec(OpKind kind, int32_t root = 0, uint64_t count = 3) {
  return {kind, DataType::kFloat32, Redop::kSum, root, count};
}

bool IsAllToAll(OpKind kind) { return kind == OpKind::kAllToAll || kind == OpKind::kAllToAllV; }
bool IsPointToPoint(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }

// Catch assertions are slow; report the first failure of many cases.
std::string FirstFailure(ProofPlacement placement, bool all_to_all) {
  for (OpKind kind : kEveryKind) {
    if (IsAllToAll(kind) && !all_to_all) continue;
    for (int world = 1; world <= 130; ++world) {
      if (IsPointToPoint(kind) && world != 2) continue;
      for (int root = 0; root < (HasRoot(kind) ? world : 1); ++root) {
        const absl::Status status = ProveLocalPlan(Spec(kind, root), world, placement);
        if (!status.ok()) return status.ToString();
      }
    }
  }
  return "";
}

TEST_CASE("every plan is proved out of place for every world to 130 and every root") {
  CHECK(FirstFailure(ProofPlacement::kOutOfPlace, true) == "");
}

TEST_CASE("every plan but all_to_all is proved in place for every world to 130 and every root") {
  CHECK(FirstFailure(ProofPlacement::kInPlace, false) == "");
}

TEST_CASE("the proof shows that all_to_all in place is unsafe from two ranks on") {
  for (OpKind kind : {OpKind::kAllToAll, OpKind::kAllToAllV}) {
    CHECK(ProveLocalPlan(Spec(kind), 1, ProofPlacement::kInPlace).ok());
    for (int world = 2; world <= 130; ++world) {
      const absl::Status status = ProveLocalPlan(Spec(kind), world, ProofPlacement::kInPlace);
      if (status.ok()) FAIL("world " << world);
      CHECK_THAT(std::string(status.message()), Catch::Contains("overwrites a block"));
    }
  }
}

// The plan of `spec`, with one step replaced or dropped.
absl::Status ProveBroken(const CollectiveSpec& spec, int world, uint32_t at, LocalStep bad) {
  return ProveSteps(spec, world, ProofPlacement::kOutOfPlace, StepCount(spec, world),
                    [&](uint32_t i) { return i == at ? bad : StepAt(spec, world, i); });
}

TEST_CASE("the proof rejects broken plans") {
  const CollectiveSpec reduce = Spec(OpKind::kAllReduce);
  const CollectiveSpec gather = Spec(OpKind::kAllGather);
  const CollectiveSpec exchange = Spec(OpKind::kAllToAll);
  REQUIRE(ProveBroken(reduce, 4, 0, {0, 4, 0, 4, 0, 0}).ok());
  SECTION("a missing contribution") {
    CHECK_FALSE(ProveBroken(reduce, 4, 0, {0, 3, 0, 4, 0, 0}).ok());
    CHECK_FALSE(ProveBroken(reduce, 4, 0, {1, 3, 0, 4, 0, 0}).ok());
  }
  SECTION("an output that nobody writes") {
    CHECK_FALSE(ProveBroken(reduce, 4, 0, {0, 4, 1, 3, 0, 0}).ok());
    CHECK_FALSE(ProveSteps(exchange, 4, ProofPlacement::kOutOfPlace, 15, [&](uint32_t i) {
                  return StepAt(exchange, 4, i);
                }).ok());
  }
  SECTION("an output written twice") {
    CHECK_FALSE(ProveBroken(gather, 4, 2, StepAt(gather, 4, 1)).ok());
    CHECK_FALSE(ProveSteps(reduce, 4, ProofPlacement::kOutOfPlace, 2, [&](uint32_t) {
                  return StepAt(reduce, 4, 0);
                }).ok());
  }
  SECTION("the right block from the wrong rank, or the wrong block") {
    CHECK_FALSE(ProveBroken(gather, 4, 2, {1, 1, 0, 4, 0, 2}).ok());
    CHECK_FALSE(ProveBroken(exchange, 4, 0, {0, 1, 0, 1, 1, 0}).ok());
  }
  SECTION("ranks and blocks out of bounds") {
    CHECK_FALSE(ProveBroken(reduce, 4, 0, {0, 5, 0, 4, 0, 0}).ok());
    CHECK_FALSE(ProveBroken(reduce, 4, 0, {-1, 4, 0, 4, 0, 0}).ok());
    CHECK_FALSE(ProveBroken(reduce, 4, 0, {0, 4, 2, 3, 0, 0}).ok());
    CHECK_FALSE(ProveBroken(reduce, 4, 0, {0, 0, 0, 4, 0, 0}).ok());
    CHECK_FALSE(
        ProveBroken(reduce, 4, 0, {0, std::numeric_limits<int32_t>::max(), 0, 4, 0, 0}).ok());
    CHECK_FALSE(ProveBroken(gather, 4, 2, {2, 1, 0, 4, 1, 2}).ok());
    CHECK_FALSE(ProveBroken(gather, 4, 2, {2, 1, 0, 4, 0, 4}).ok());
  }
  SECTION("a copy from several ranks") {
    CHECK_FALSE(ProveBroken(gather, 4, 2, {2, 2, 0, 4, 0, 2}).ok());
  }
}

TEST_CASE("the proof rejects an in-place plan that reads what another step overwrites") {
  // Step i sums everyone's block i + 1, so that step i + 1 overwrites what step i reads at rank i
  // + 1.
  const CollectiveSpec spec = Spec(OpKind::kReduceScatter);
  const auto shifted = [&](uint32_t i) {
    LocalStep step = StepAt(spec, 4, i);
    step.src_block = (step.src_block + 1) % 4;
    return step;
  };
  const absl::Status status = ProveSteps(spec, 4, ProofPlacement::kInPlace, 4, shifted);
  CHECK_THAT(std::string(status.message()), Catch::Contains("overwrites a block"));
}

TEST_CASE("all_to_all steps rotate so that sources start at different destinations") {
  constexpr int kWorld = 7;
  const CollectiveSpec spec = Spec(OpKind::kAllToAll);
  for (uint32_t k = 0; k < kWorld; ++k) {
    std::vector<int> hits(kWorld);
    for (uint32_t s = 0; s < kWorld; ++s) {
      const LocalStep step = StepAt(spec, kWorld, s * kWorld + k);
      CHECK(step.src_first == static_cast<int>(s));
      ++hits[step.dst_first];
    }
    for (int hit : hits) CHECK(hit == 1);
  }
}

TEST_CASE("block counts follow NCCL's argument conventions") {
  CHECK(InputBlocks(Spec(OpKind::kAllGather), 5, 2) == 1);
  CHECK(OutputBlocks(Spec(OpKind::kAllGather), 5, 2) == 5);
  CHECK(InputBlocks(Spec(OpKind::kReduceScatter), 5, 2) == 5);
  CHECK(OutputBlocks(Spec(OpKind::kReduceScatter), 5, 2) == 1);
  CHECK(OutputBlocks(Spec(OpKind::kReduce, 3), 5, 3) == 1);
  CHECK(OutputBlocks(Spec(OpKind::kReduce, 3), 5, 2) == 0);
  CHECK(InputBlocks(Spec(OpKind::kBroadcast, 3), 5, 2) == 0);
  CHECK(InputBlocks(Spec(OpKind::kScatter, 3), 5, 3) == 5);
  CHECK(OutputBlocks(Spec(OpKind::kGather, 3), 5, 3) == 5);
  CHECK(StepCount(Spec(OpKind::kBarrier), 5) == 0);
  CHECK(StepCount(Spec(OpKind::kAllToAll), kWorldMax) == 4294836225u);
}

// Blocks of 3 float32: 12 bytes. World 4.
TEST_CASE("placement recognises NCCL's in-place pointers and nothing else") {
  const uint64_t base = 4096;
  const auto placement = [](OpKind kind, int rank, uint64_t in, uint64_t out) {
    return PlacementOf(Spec(kind, 1), 4, rank, in, out);
  };
  SECTION("same pointer") {
    for (OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kBroadcast}) {
      CHECK(placement(kind, 1, base, base) == Placement::kInPlace);
      CHECK(placement(kind, 1, base, base + 4) == Placement::kForbidden);
      CHECK(placement(kind, 1, base + 11, base) == Placement::kForbidden);
      CHECK(placement(kind, 1, base, base + 12) == Placement::kDisjoint);
      CHECK(placement(kind, 1, base + 12, base) == Placement::kDisjoint);
    }
  }
  SECTION("the own block of the larger buffer") {
    CHECK(placement(OpKind::kAllGather, 2, base + 24, base) == Placement::kInPlace);
    CHECK(placement(OpKind::kAllGather, 2, base, base) == Placement::kForbidden);
    CHECK(placement(OpKind::kAllGather, 2, base + 48, base) == Placement::kDisjoint);
    CHECK(placement(OpKind::kAllGather, 2, base - 12, base) == Placement::kDisjoint);
    CHECK(placement(OpKind::kAllGather, 2, base - 11, base) == Placement::kForbidden);
    CHECK(placement(OpKind::kReduceScatter, 3, base, base + 36) == Placement::kInPlace);
    CHECK(placement(OpKind::kReduceScatter, 3, base, base + 24) == Placement::kForbidden);
    CHECK(placement(OpKind::kReduceScatter, 3, base, base + 48) == Placement::kDisjoint);
    CHECK(placement(OpKind::kGather, 1, base + 12, base) == Placement::kInPlace);
    CHECK(placement(OpKind::kGather, 1, base, base) == Placement::kForbidden);
    CHECK(placement(OpKind::kScatter, 1, base, base + 12) == Placement::kInPlace);
    CHECK(placement(OpKind::kScatter, 1, base, base) == Placement::kForbidden);
  }
  SECTION("ranks without an input or an output") {
    CHECK(placement(OpKind::kReduce, 2, base, base) == Placement::kDisjoint);
    CHECK(placement(OpKind::kBroadcast, 2, base, base) == Placement::kDisjoint);
    CHECK(placement(OpKind::kGather, 2, base, base) == Placement::kDisjoint);
    CHECK(PlacementOf(Spec(OpKind::kAllReduce, 0, 0), 4, 1, base, base) == Placement::kDisjoint);
  }
  SECTION("all_to_all has no in-place form") {
    CHECK(placement(OpKind::kAllToAll, 2, base, base) == Placement::kForbidden);
    CHECK(placement(OpKind::kAllToAll, 2, base, base + 47) == Placement::kForbidden);
    CHECK(placement(OpKind::kAllToAll, 2, base, base + 48) == Placement::kDisjoint);
  }
  SECTION("addresses at the end of the address space do not wrap") {
    const uint64_t top = std::numeric_limits<uint64_t>::max() - 11;
    CHECK(placement(OpKind::kAllReduce, 0, top, 0) == Placement::kDisjoint);
    CHECK(placement(OpKind::kAllReduce, 0, 0, top) == Placement::kDisjoint);
    CHECK(placement(OpKind::kAllReduce, 0, top, top) == Placement::kInPlace);
    CHECK(placement(OpKind::kAllReduce, 0, top, top - 4) == Placement::kForbidden);
  }
}

std::string Message(const CollectiveSpec& spec, int world) {
  const absl::Status status = ValidateSpec(spec, world);
  if (status.ok()) return "";
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST_CASE("validation names the operation, the value seen and the value expected") {
  CHECK(Message(Spec(OpKind::kReduce, 4), 4) == "reduce: root 4, expected 0 to 3");
  CHECK(Message(Spec(OpKind::kBroadcast, -1), 4) == "broadcast: root -1, expected 0 to 3");
  CHECK(Message(Spec(OpKind::kAllReduce, -1), 4) == "");  // has no root
  CHECK(Message(Spec(static_cast<OpKind>(12)), 4) == "unknown operation 12, expected 0 to 11");
  CHECK(Message(Spec(OpKind::kAllReduce), 0) == "all_reduce: world size 0, expected 1 to 65535");
  CHECK(Message(Spec(OpKind::kAllReduce), 1000000) ==
        "all_reduce: world size 1000000, expected 1 to 65535");
  CollectiveSpec spec = Spec(OpKind::kAllGather);
  spec.dtype = static_cast<DataType>(12);
  CHECK(Message(spec, 4) == "all_gather: unknown data type 12, expected 0 to 11");
  spec = Spec(OpKind::kReduceScatter);
  spec.redop = static_cast<Redop>(6);
  CHECK(Message(spec, 4) == "reduce_scatter: unknown reduction 6, expected 0 to 5");
  spec.kind = OpKind::kAllGather;
  CHECK(Message(spec, 4) == "");  // reduces nothing
}

TEST_CASE("validation bounds the bytes of the whole world at 2^62") {
  CHECK(Message(Spec(OpKind::kAllGather, 0, uint64_t{1} << 58), 4) == "");
  CHECK(Message(Spec(OpKind::kAllGather, 0, (uint64_t{1} << 58) + 1), 4) ==
        "all_gather: count 288230376151711745 of float32 on 4 ranks, expected at most "
        "288230376151711744");
  CHECK(Message(Spec(OpKind::kAllGather, 0, std::numeric_limits<uint64_t>::max()), 1) != "");
}

TEST_CASE("validation accepts every type with every reduction") {
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int op = 0; op < kRedopCount; ++op) {
      const CollectiveSpec spec = {OpKind::kAllReduce, static_cast<DataType>(type),
                                   static_cast<Redop>(op), 0, 1};
      CHECK(Message(spec, 130) == "");
    }
  }
}

}  // namespace
}  // namespace shunt
