// What an operation costs inside the units, where GPUs talk over NVLink.
#pragma once

#include "runtime/collectives/sim/cluster.h"
#include "runtime/core/types.h"

namespace shunt::sim {

// What a GPU's NVLink port carries in its busier direction, and how often its latency is paid,
// before and after the units' exchange. With a domain of d GPUs each rail belongs to a GPU, and the
// data is dealt over them: (d - 1) / d of it goes to the others.
struct LocalPhases {
  double before_bytes = 0, after_bytes = 0;
  int latencies = 0;

  double bytes() const { return before_bytes + after_bytes; }
};

// `bytes` as nccl-tests count them.
LocalPhases LocalPhasesOf(const Cluster& cluster, OpKind kind, double bytes);

}  // namespace shunt::sim
