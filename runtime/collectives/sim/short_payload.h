// How an executed run does without the data: a payload is short and counts as a long one. Private
// to this directory.
#pragma once

#include <cstdint>

#include "runtime/collectives/plan/local_plan.h"
#include "runtime/collectives/sim/net_run.h"
#include "runtime/transport/fake/network.h"

namespace shunt::sim {

// How many bytes one real byte stands for: 1 for what is little anyway.
uint64_t ScaleOf(const NetRun& run);
// The units as ranks, each a node of its own; its count is in real bytes.
CollectiveSpec CallOf(const NetRun& run, uint64_t scale);
// Its times are those of the long payload.
transport::FakeNetwork::Options NetworkOptions(const Cluster& cluster, uint64_t scale);

}  // namespace shunt::sim
