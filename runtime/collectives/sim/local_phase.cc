#include "runtime/collectives/sim/local_phase.h"

namespace shunt::sim {

LocalPhases LocalPhasesOf(const Cluster& cluster, OpKind kind, double bytes) {
  const double d = cluster.domain();
  if (d == 1) return {};
  const double part = bytes * (d - 1) / d;
  switch (kind) {
    case OpKind::kBarrier:
      return {0, 0, 2};
    case OpKind::kAllReduce:  // reduce_scatter, then all_gather
    case OpKind::kReduce:     // reduce_scatter, then gather at the root
    case OpKind::kBroadcast:  // scatter from the root, then all_gather
      return {part, part, 2};
    case OpKind::kReduceScatter:
    case OpKind::kScatter:
    case OpKind::kAllToAll:  // to the GPU on the rail of whom it is for
    case OpKind::kAllToAllV:
      return {part, 0, 1};
    case OpKind::kAllGather:
    case OpKind::kGather:
      return {0, part, 1};
    case OpKind::kSend:
    case OpKind::kRecv:
      break;
  }
  return {};
}

}  // namespace shunt::sim
