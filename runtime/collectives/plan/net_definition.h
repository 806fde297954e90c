// The operations among nodes, as the table of net_plan.h defines them, whatever the algorithm.
// Private to this directory.
#pragma once

#include <cstdint>

#include "runtime/collectives/plan/net_plan.h"

namespace shunt::net {

// A barrier and an all_to_all_v are run by the plans of these.
inline OpKind PlanKind(OpKind kind) {
  if (kind == OpKind::kBarrier) return OpKind::kAllReduce;
  return kind == OpKind::kAllToAllV ? OpKind::kAllToAll : kind;
}

// True if blocks are whole vectors, which a kCombine folds into the output.
inline bool CombinesVectors(const NetSpec& spec) {
  return PlanKind(spec.kind) == OpKind::kAllReduce && spec.algorithm == Algorithm::kDirect;
}

// True if participant p holds (its share of) the block at first.
inline bool HeldAtFirst(const NetSpec& spec, int32_t p, uint32_t block) {
  if (p >= spec.participants) return false;
  switch (PlanKind(spec.kind)) {
    case OpKind::kAllReduce:
      return !CombinesVectors(spec) || block == static_cast<uint32_t>(p);
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
      return true;
    case OpKind::kAllGather:
    case OpKind::kGather:
      return block == static_cast<uint32_t>(p);
    case OpKind::kAllToAll:
      return block / static_cast<uint32_t>(spec.participants) == static_cast<uint32_t>(p);
    default:
      return p == spec.root;
  }
}

// True if participant p's output has the block.
inline bool HeldAtEnd(const NetSpec& spec, int32_t p, uint32_t block) {
  if (p >= spec.participants) return false;
  switch (PlanKind(spec.kind)) {
    case OpKind::kReduce:
    case OpKind::kGather:
      return p == spec.root;
    case OpKind::kReduceScatter:
    case OpKind::kScatter:
      return block == static_cast<uint32_t>(p);
    case OpKind::kAllToAll:
      return block % static_cast<uint32_t>(spec.participants) == static_cast<uint32_t>(p);
    default:
      return true;
  }
}

}  // namespace shunt::net
