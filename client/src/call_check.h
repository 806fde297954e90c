// What a caller may get wrong in a collective call, found before anything is posted.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/board/member.h"
#include "runtime/collectives/plan/local_plan.h"

namespace shunt::client {

// A buffer as the caller gave it, and how many blocks of `count` elements this rank has there.
struct Side {
  const void* data;
  uint32_t blocks;
};

// The words for a call that LooksRight() turned down; OK if there is nothing wrong with it after
// all.
absl::Status DescribeCall(const CollectiveSpec& spec, int world, int rank, int peer, Side in,
                          Side out);

// True if spec, pointers, their alignment and their overlap are those of most right calls. `world`
// is the communicator's; spec.root is checked against it, `peer` (send and receive) too.
inline bool LooksRight(const CollectiveSpec& spec, int world, int rank, int peer, Side in,
                       Side out) {
  if (!IsValid(spec.dtype) || (Reduces(spec.kind) && !IsValid(spec.redop))) return false;
  if (HasRoot(spec.kind) && static_cast<uint32_t>(spec.root) >= static_cast<uint32_t>(world))
    return false;
  const bool pair = spec.kind == OpKind::kSend || spec.kind == OpKind::kRecv;
  if (pair && static_cast<uint32_t>(peer) >= static_cast<uint32_t>(world)) return false;
  // No overflow below: 2^40 elements of 8 bytes on 128 ranks. DescribeCall knows the real limit.
  if (spec.count > uint64_t{1} << 40) return false;
  const uint64_t element = SizeOf(spec.dtype);
  const uint64_t in_bytes = spec.count * element * in.blocks;
  const uint64_t out_bytes = spec.count * element * out.blocks;
  const auto a = reinterpret_cast<uintptr_t>(in.data);
  const auto b = reinterpret_cast<uintptr_t>(out.data);
  if (in_bytes != 0 && (a == 0 || (a & (element - 1)) != 0)) return false;
  if (out_bytes != 0 && (b == 0 || (b & (element - 1)) != 0)) return false;
  if (in_bytes == 0 || out_bytes == 0 || a + in_bytes <= b || b + out_bytes <= a) return true;
  return PlacementOf(spec, world, rank, a, b) == Placement::kInPlace;
}

// all_to_all_v: its tables (`world` entries each, none null) and the memory that they span.
absl::Status CheckTables(const board::Call& call, int world);

}  // namespace shunt::client
