// What the links between nodes can do at most, and what few bytes between them cost at least.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "bench/harness/options.h"
#include "bench/harness/record.h"

namespace shunt::bench {

// Prints a line and appends a record for each limit, over namespaces of its own: one TCP stream
// (iperf3) on shaped and on unshaped links, UCX over TCP at 1 MiB, recursive doubling over plain
// sockets at 8 B to 4 KiB. What a missing tool leaves out is said on stdout. NOT_FOUND and
// UNAVAILABLE if this build or this machine has no nodes.
absl::Status MeasureLinkLimits(const LimitsOptions& options, std::vector<Record>* records);

}  // namespace shunt::bench
