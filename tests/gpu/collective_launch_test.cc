// What a collective is for the kernels, executed by their bodies on the CPU, against the plan's
// definition step by step.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/exec/reduce.h"
#include "runtime/collectives/plan/local_plan.h"
#include "runtime/gpu/kernels/collective.h"
#include "tests/gpu/kernels_inputs.h"
#include "tests/gpu/kernels_on_cpu.h"

namespace shunt::gpu {
namespace {

constexpr std::byte kPoison{0xa5};

// The ranks' buffers of one call. In place where that is allowed: then a rank has one buffer, the
// larger one.
class World {
 public:
  World(const CollectiveSpec& spec, int world, bool in_place, Inputs* inputs)
      : spec_(spec), world_(world), in_(Count()), out_(Count()), scalars_(Count()) {
    const uint64_t block = spec.count * SizeOf(spec.dtype);
    for (int rank = 0; rank < world; ++rank) {
      const uint32_t in_blocks = InputBlocks(spec, world, rank);
      const uint32_t out_blocks = OutputBlocks(spec, world, rank);
      const auto at = static_cast<size_t>(rank);
      memory_.emplace_back((in_blocks + out_blocks) * block + 64, kPoison);
      std::byte* const base = memory_.back().data() + 16;
      in_[at] = in_blocks > 0 ? base : nullptr;
      out_[at] = out_blocks > 0 ? base + in_blocks * block : nullptr;
      if (in_place && in_blocks > 0 && out_blocks > 0) {
        in_[at] = base + (in_blocks < out_blocks ? static_cast<uint64_t>(Own(rank)) * block : 0);
        out_[at] = base + (out_blocks < in_blocks ? static_cast<uint64_t>(Own(rank)) * block : 0);
        REQUIRE(PlacementOf(spec, world, rank, reinterpret_cast<uint64_t>(in_[at]),
                            reinterpret_cast<uint64_t>(out_[at])) == Placement::kInPlace);
      }
      if (in_blocks > 0) inputs->Fill(spec.dtype, true, in_[at], in_blocks * spec.count);
      inputs->Fill(spec.dtype, false, scalars_[at].bytes, 1);
    }
  }

  std::unique_ptr<Command> AsCommand() const {
    auto command = std::make_unique<Command>();
    command->kind = CommandKind::kCollective;
    command->op_kind = static_cast<uint8_t>(spec_.kind);
    command->dtype = static_cast<uint8_t>(spec_.dtype);
    command->redop = static_cast<uint8_t>(spec_.redop);
    command->root = spec_.root;
    command->count = spec_.count;
    command->places = static_cast<uint32_t>(world_);
    for (size_t rank = 0; rank < Count(); ++rank) {
      command->place[rank].in = reinterpret_cast<uint64_t>(in_[rank]);
      command->place[rank].out = reinterpret_cast<uint64_t>(out_[rank]);
      std::memcpy(command->place[rank].scalar, scalars_[rank].bytes, sizeof(Scalar));
    }
    return command;
  }

  // By the plan, from what the buffers hold now.
  std::vector<std::vector<std::byte>> Expected() const {
    auto expected = memory_;
    const uint64_t block = spec_.count * SizeOf(spec_.dtype);
    for (uint32_t i = 0; i < StepCount(spec_, world_); ++i) {
      const LocalStep step = StepAt(spec_, world_, i);
      std::vector<const std::byte*> sources;
      std::vector<std::byte*> destinations;
      for (int k = 0; k < step.src_count; ++k) {
        sources.push_back(in_[static_cast<size_t>(step.src_first + k)] + step.src_block * block);
      }
      for (int k = 0; k < step.dst_count; ++k) {
        const auto rank = static_cast<size_t>(step.dst_first + k);
        destinations.push_back(expected[rank].data() + (out_[rank] - memory_[rank].data()) +
                               step.dst_block * block);
      }
      if (Reduces(spec_.kind)) {
        ReduceInto({spec_.dtype, spec_.redop, world_, StorePolicy::kTemporal}, sources, scalars_,
                   destinations, spec_.count);
      } else {
        for (std::byte* const destination : destinations) {
          std::memcpy(destination, sources[0], block);
        }
      }
    }
    return expected;
  }

  const std::vector<std::vector<std::byte>>& memory() const { return memory_; }

 private:
  size_t Count() const { return static_cast<size_t>(world_); }
  int Own(int rank) const { return HasRoot(spec_.kind) ? spec_.root : rank; }

  const CollectiveSpec spec_;
  const int world_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> in_, out_;
  std::vector<Scalar> scalars_;
};

void Execute(const CollectiveLaunch& launch) {
  if (launch.kind == CollectiveLaunch::Kind::kReduce) {
    const auto redop = static_cast<Redop>(launch.reduce.redop);
    // As Kernels has it, a copy.
    REQUIRE((launch.reduce.sources > 1 || redop == Redop::kPremulSum));
    testing::ReduceOnCpu(launch.reduce);
  }
  if (launch.kind == CollectiveLaunch::Kind::kSpread) testing::SpreadOnCpu(launch.spread);
}

void Check(const CollectiveSpec& spec, int world, bool in_place, Inputs* inputs,
           CollectiveLaunch* launch) {
  INFO(std::string(Name(spec.kind))
       << " of " << world << " ranks, root " << spec.root << ", " << spec.count << " "
       << std::string(Name(spec.dtype)) << " " << std::string(Name(spec.redop))
       << (in_place ? ", in place" : ""));
  World ranks(spec, world, in_place, inputs);
  const auto expected = ranks.Expected();
  REQUIRE(PlanCollective(*ranks.AsCommand(), launch).ok());
  Execute(*launch);
  REQUIRE(ranks.memory() == expected);
}

bool MayBeInPlace(OpKind kind) {
  return kind != OpKind::kAllToAll && kind != OpKind::kSend && kind != OpKind::kRecv;
}

TEST_CASE("every collective of 1 to 16 and 128 ranks is what its plan says") {
  Inputs inputs(20240612);
  CollectiveLaunch launch;
  for (int kind = 1; kind < kOpKindCount; ++kind) {
    const auto op = static_cast<OpKind>(kind);
    if (op == OpKind::kAllToAllV) continue;
    for (int world = 1; world <= 17; ++world) {
      const int ranks = world == 17 ? kGatesMax : world;
      const bool pair = op == OpKind::kSend || op == OpKind::kRecv;
      if (pair && ranks != 2) continue;
      for (const uint64_t count : {1, 37, 4100}) {
        if (ranks == kGatesMax && count > 37) continue;
        for (const bool in_place : {false, true}) {
          if (in_place && !MayBeInPlace(op)) continue;
          const auto dtype = static_cast<DataType>(inputs.Below(kDataTypeCount));
          const auto redop =
              ranks == 1 ? Redop::kPremulSum : static_cast<Redop>(inputs.Below(kRedopCount));
          const auto root = static_cast<int32_t>(inputs.Below(static_cast<uint64_t>(ranks)));
          Check({op, dtype, redop, HasRoot(op) ? root : 0, count}, ranks, in_place, &inputs,
                &launch);
        }
      }
    }
  }
}

TEST_CASE("a launch that is used again has nothing of the call before") {
  Inputs inputs(2);
  CollectiveLaunch launch;
  const auto check = [&](OpKind kind, int world, int32_t root) {
    Check({kind, DataType::kFloat32, Redop::kSum, root, 100}, world, false, &inputs, &launch);
  };
  check(OpKind::kReduceScatter, 5, 0);
  check(OpKind::kAllReduce, 3, 0);
  check(OpKind::kReduce, 4, 3);
  check(OpKind::kAllToAll, 6, 0);
  check(OpKind::kBroadcast, 4, 2);
  check(OpKind::kAllGather, 4, 0);
  check(OpKind::kGather, 4, 1);
  check(OpKind::kScatter, 4, 1);
  check(OpKind::kRecv, 2, 0);
}

TEST_CASE("barriers and empty calls move nothing") {
  CollectiveLaunch launch;
  auto command = std::make_unique<Command>();
  command->kind = CommandKind::kCollective;
  command->op_kind = static_cast<uint8_t>(OpKind::kBarrier);
  launch.kind = CollectiveLaunch::Kind::kSpread;
  REQUIRE(PlanCollective(*command, &launch).ok());
  REQUIRE(launch.kind == CollectiveLaunch::Kind::kSignal);

  // Of no elements, a rank may have no buffer.
  command->op_kind = static_cast<uint8_t>(OpKind::kAllReduce);
  command->places = 4;
  launch.kind = CollectiveLaunch::Kind::kSpread;
  REQUIRE(PlanCollective(*command, &launch).ok());
  REQUIRE(launch.kind == CollectiveLaunch::Kind::kSignal);
}

TEST_CASE("a collective that makes no sense is refused in words") {
  CollectiveLaunch launch;
  auto command = std::make_unique<Command>();
  command->kind = CommandKind::kCollective;
  command->op_kind = static_cast<uint8_t>(OpKind::kReduce);
  command->places = 2;
  command->count = 8;
  command->root = 1;
  for (Place& place : command->place) place = {4096, 8192, {}};
  REQUIRE(PlanCollective(*command, &launch).ok());

  const auto refused = [&](absl::StatusCode code, const std::string& words) {
    const absl::Status status = PlanCollective(*command, &launch);
    CHECK(status.code() == code);
    CHECK(std::string(status.message()) == words);
  };
  command->place[1].out = 0;
  refused(absl::StatusCode::kInvalidArgument, "reduce: rank 1 has no output, expected an address");
  command->place[0].in = 0;
  refused(absl::StatusCode::kInvalidArgument, "reduce: rank 0 has no input, expected an address");
  command->root = 2;
  refused(absl::StatusCode::kInvalidArgument, "reduce: root 2, expected 0 to 1");
  command->op_kind = static_cast<uint8_t>(OpKind::kSend);
  command->places = 3;
  refused(absl::StatusCode::kInvalidArgument, "send: 3 participants, expected 2");
  command->places = 129;
  refused(absl::StatusCode::kInvalidArgument,
          "a collective of 129 ranks on one GPU, expected at most 128");
  command->places = 2;
  command->op_kind = static_cast<uint8_t>(OpKind::kAllToAllV);
  refused(absl::StatusCode::kUnimplemented,
          "all_to_all_v: a command of the kind collective has no sizes of pieces; expected one of "
          "the kind move");
}

}  // namespace
}  // namespace shunt::gpu
