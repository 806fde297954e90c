#include "runtime/collectives/plan/local_plan.h"

#include "absl/strings/str_cat.h"

namespace shunt {
namespace {

// No buffer of a valid spec is larger, so that offsets and their sums fit in 64 bits, signed too.
constexpr uint64_t kBytesMax = uint64_t{1} << 62;

absl::string_view Word(std::string_view name) { return {name.data(), name.size()}; }

template <class... Args>
absl::Status Invalid(OpKind kind, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(Word(Name(kind)), ": ", args...));
}

bool Overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a < b ? b - a < a_bytes : a - b < b_bytes;
}

}  // namespace

absl::Status ValidateSpec(const CollectiveSpec& spec, int world) {
  if (!IsValid(spec.kind)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown operation ", static_cast<int>(spec.kind), ", expected 0 to ", kOpKindCount - 1));
  }
  if (world < 1 || world > kWorldMax) {
    return Invalid(spec.kind, "world size ", world, ", expected 1 to ", kWorldMax);
  }
  if (!IsValid(spec.dtype)) {
    return Invalid(spec.kind, "unknown data type ", static_cast<int>(spec.dtype),
                   ", expected 0 to ", kDataTypeCount - 1);
  }
  if (Reduces(spec.kind) && !IsValid(spec.redop)) {
    return Invalid(spec.kind, "unknown reduction ", static_cast<int>(spec.redop),
                   ", expected 0 to ", kRedopCount - 1);
  }
  if (HasRoot(spec.kind) && (spec.root < 0 || spec.root >= world)) {
    return Invalid(spec.kind, "root ", spec.root, ", expected 0 to ", world - 1);
  }
  const uint64_t size = SizeOf(spec.dtype);
  const uint64_t count_max = kBytesMax / size / static_cast<uint64_t>(world);
  if (spec.count > count_max) {
    return Invalid(spec.kind, "count ", spec.count, " of ", Word(Name(spec.dtype)), " on ", world,
                   " ranks, expected at most ", count_max);
  }
  return absl::OkStatus();
}

uint32_t InputBlocks(const CollectiveSpec& spec, int world, int rank) {
  switch (spec.kind) {
    case OpKind::kBarrier:
      return 0;
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kAllGather:
    case OpKind::kGather:
      return 1;
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
      return static_cast<uint32_t>(world);
    case OpKind::kBroadcast:
      return rank == spec.root ? 1 : 0;
    case OpKind::kScatter:
      return rank == spec.root ? static_cast<uint32_t>(world) : 0;
    case OpKind::kSend:
    case OpKind::kRecv:
      return rank == 0 ? 1 : 0;
  }
  return 0;
}

uint32_t OutputBlocks(const CollectiveSpec& spec, int world, int rank) {
  switch (spec.kind) {
    case OpKind::kBarrier:
      return 0;
    case OpKind::kAllReduce:
    case OpKind::kBroadcast:
    case OpKind::kReduceScatter:
    case OpKind::kScatter:
      return 1;
    case OpKind::kAllGather:
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
      return static_cast<uint32_t>(world);
    case OpKind::kReduce:
      return rank == spec.root ? 1 : 0;
    case OpKind::kGather:
      return rank == spec.root ? static_cast<uint32_t>(world) : 0;
    case OpKind::kSend:
    case OpKind::kRecv:
      return rank == 1 ? 1 : 0;
  }
  return 0;
}

uint32_t StepCount(const CollectiveSpec& spec, int world) {
  const auto ranks = static_cast<uint32_t>(world);
  switch (spec.kind) {
    case OpKind::kBarrier:
      return 0;
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast:
    case OpKind::kSend:
    case OpKind::kRecv:
      return 1;
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kGather:
    case OpKind::kScatter:
      return ranks;
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
      return ranks * ranks;
  }
  return 0;
}

LocalStep StepAt(const CollectiveSpec& spec, int world, uint32_t index) {
  const auto i = static_cast<int32_t>(index);
  switch (spec.kind) {
    case OpKind::kBarrier:
      break;
    case OpKind::kAllReduce:
      return {0, world, 0, world, 0, 0};
    case OpKind::kReduce:
      return {0, world, spec.root, 1, 0, 0};
    case OpKind::kBroadcast:
      return {spec.root, 1, 0, world, 0, 0};
    case OpKind::kAllGather:
      return {i, 1, 0, world, 0, index};
    case OpKind::kReduceScatter:
      return {0, world, i, 1, index, 0};
    case OpKind::kGather:
      return {i, 1, spec.root, 1, 0, index};
    case OpKind::kScatter:
      return {spec.root, 1, i, 1, index, 0};
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV: {
      const auto ranks = static_cast<uint32_t>(world);
      const uint32_t from = index / ranks;
      const uint32_t to = (from + index % ranks) % ranks;
      return {static_cast<int32_t>(from), 1, static_cast<int32_t>(to), 1, to, from};
    }
    case OpKind::kSend:
    case OpKind::kRecv:
      return {0, 1, 1, 1, 0, 0};
  }
  return {};
}

Placement PlacementOf(const CollectiveSpec& spec, int world, int rank, uint64_t in, uint64_t out) {
  const uint64_t block = spec.count * SizeOf(spec.dtype);
  const uint64_t in_bytes = block * InputBlocks(spec, world, rank);
  const uint64_t out_bytes = block * OutputBlocks(spec, world, rank);
  if (in_bytes == 0 || out_bytes == 0 || !Overlap(in, in_bytes, out, out_bytes)) {
    return Placement::kDisjoint;
  }
  const uint64_t own = block * static_cast<uint64_t>(rank);  // the block of this rank (or root)
  bool allowed = false;
  switch (spec.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast:
      allowed = in == out;
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
      allowed = in >= out && in - out == own;
      break;
    case OpKind::kReduceScatter:
    case OpKind::kScatter:
      allowed = out >= in && out - in == own;
      break;
    default:
      break;
  }
  return allowed ? Placement::kInPlace : Placement::kForbidden;
}

}  // namespace shunt
