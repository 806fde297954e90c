#include "runtime/gpu/kernels/collective.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "runtime/collectives/plan/local_plan.h"
#include "runtime/core/status.h"

namespace shunt::gpu {
namespace {

absl::string_view Word(std::string_view text) { return {text.data(), text.size()}; }

absl::Status CheckPlaces(const CollectiveSpec& spec, const Command& command) {
  const int world = static_cast<int>(command.places);
  for (int rank = 0; rank < world; ++rank) {
    const Place& place = command.place[rank];
    const char* missing = nullptr;
    if (InputBlocks(spec, world, rank) > 0 && place.in == 0) missing = "input";
    if (OutputBlocks(spec, world, rank) > 0 && place.out == 0) missing = "output";
    if (missing != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(Word(Name(spec.kind)), ": rank ", rank,
                                                     " has no ", missing, ", expected an address"));
    }
  }
  return absl::OkStatus();
}

void PlanReduce(const CollectiveSpec& spec, const Command& command, CollectiveLaunch* launch) {
  launch->kind = CollectiveLaunch::Kind::kReduce;
  ReduceParams& params = launch->reduce;
  const uint32_t world = command.places;
  params.dtype = command.dtype;
  params.redop = command.redop;
  params.sources = static_cast<uint16_t>(world);
  params.scatter = spec.kind == OpKind::kReduceScatter ? 1 : 0;
  params.divisor = world;
  params.count = spec.count;
  for (uint32_t rank = 0; rank < world; ++rank) {
    params.source[rank] = command.place[rank].in;
    std::memcpy(&params.scalar[rank], command.place[rank].scalar, sizeof(params.scalar[rank]));
  }
  if (spec.kind == OpKind::kReduce) {
    params.destinations = 1;
    params.destination[0] = command.place[spec.root].out;
    return;
  }
  params.destinations = static_cast<uint16_t>(world);
  for (uint32_t rank = 0; rank < world; ++rank) {
    params.destination[rank] = command.place[rank].out;
  }
}

void PlanSpread(const CollectiveSpec& spec, const Command& command, CollectiveLaunch* launch) {
  launch->kind = CollectiveLaunch::Kind::kSpread;
  SpreadParams& params = launch->spread;
  const uint32_t world = command.places;
  params.bytes = spec.count * SizeOf(spec.dtype);
  params.segments = params.destinations = world;
  for (uint32_t rank = 0; rank < world; ++rank) {
    params.source[rank] = command.place[rank].in;
    params.destination[rank] = command.place[rank].out;
  }
  switch (spec.kind) {
    case OpKind::kAllToAll:
      params.pattern = SpreadPattern::kPairs;
      return;
    case OpKind::kAllGather:
      params.pattern = SpreadPattern::kFan;
      return;
    case OpKind::kGather:
      params.pattern = SpreadPattern::kFan;
      params.destinations = 1;
      params.destination[0] = command.place[spec.root].out;
      return;
    case OpKind::kBroadcast:
      params.pattern = SpreadPattern::kFan;
      params.segments = 1;
      params.source[0] = command.place[spec.root].in;
      return;
    case OpKind::kScatter:
      params.pattern = SpreadPattern::kEach;
      for (uint32_t rank = 0; rank < world; ++rank) {
        params.source[rank] = command.place[spec.root].in + rank * params.bytes;
      }
      return;
    default:  // send, recv: from participant 0 to 1
      params.pattern = SpreadPattern::kEach;
      params.segments = params.destinations = 1;
      params.destination[0] = command.place[1].out;
      return;
  }
}

}  // namespace

absl::Status PlanCollective(const Command& command, CollectiveLaunch* launch) {
  const CollectiveSpec spec = {static_cast<OpKind>(command.op_kind),
                               static_cast<DataType>(command.dtype),
                               static_cast<Redop>(command.redop), command.root, command.count};
  if (command.places > kGatesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a collective of ", command.places, " ranks on one GPU, expected at most ", kGatesMax));
  }
  launch->kind = CollectiveLaunch::Kind::kSignal;
  // Its ranks may be anywhere: a barrier has no places.
  if (spec.kind == OpKind::kBarrier) return absl::OkStatus();
  SHUNT_RETURN_IF_ERROR(ValidateSpec(spec, static_cast<int>(command.places)));
  if ((spec.kind == OpKind::kSend || spec.kind == OpKind::kRecv) && command.places != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(Word(Name(spec.kind)), ": ", command.places, " participants, expected 2"));
  }
  if (spec.kind == OpKind::kAllToAllV) {
    return absl::UnimplementedError(
        "all_to_all_v: a command of the kind collective has no sizes of pieces; expected one of "
        "the kind move");
  }
  if (spec.count == 0) return absl::OkStatus();
  SHUNT_RETURN_IF_ERROR(CheckPlaces(spec, command));
  if (Reduces(spec.kind)) {
    PlanReduce(spec, command, launch);
  } else {
    PlanSpread(spec, command, launch);
  }
  return absl::OkStatus();
}

}  // namespace shunt::gpu
