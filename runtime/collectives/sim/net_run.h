// One rail's part of an operation: the collective among the units over one link of each. Two ways
// to find how long it takes. Private to this directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/collectives/plan/net_plan.h"
#include "runtime/collectives/sim/cluster.h"

namespace shunt::sim {

struct NetRun {
  const Cluster* cluster = nullptr;
  NetSpec spec;
  // As in CostOf (net_cost.h): of the vector, or of the larger buffer of a unit.
  uint64_t bytes = 0;
  uint32_t slices = 1;
  std::vector<double> bytes_per_s;  // by participant, then by aggregator
};

struct BusiestPort {
  int participant = 0;  // or aggregator
  bool out = true;
  double bytes = 0;   // an operation's
  double busy_s = 0;  // of it
  int alike = 0;      // others with the same load
};

struct NetOutcome {
  double seconds = 0;
  BusiestPort busiest;
  uint64_t messages = 0;  // that the simulator has looked at
  std::string failure;    // why it ended at `seconds`; empty: it succeeded
};

// What RunExecuted would do, in units of about 20 ns.
double ExecutedWork(const NetRun& run);
// The executor and the transport's engine run over a network in virtual time.
absl::StatusOr<NetOutcome> RunExecuted(const NetRun& run);

// Walks the plan. Where all participants of a plan do the same, one of them stands for all, at the
// pace of the slowest.
absl::StatusOr<NetOutcome> RunComputed(const NetRun& run);

// The busiest of what is given by participant, out and in.
struct PortLoad {
  double bytes = 0, busy_s = 0;
};
BusiestPort BusiestOf(const std::vector<PortLoad>& out, const std::vector<PortLoad>& in);

}  // namespace shunt::sim
