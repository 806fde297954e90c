// shunt-perf's pull and push: permuted pieces between the memory of two agents.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "bench/harness/net_cluster.h"
#include "bench/harness/options.h"
#include "bench/harness/rank_home.h"
#include "bench/harness/record.h"

namespace shunt::bench {

// Rank i of the lower half owns the section that rank i + ranks/2 moves from or to. `cluster` may
// be null. Adds to `wrong` the bytes that did not arrive as they were.
absl::Status BenchmarkTransfers(const PerfOptions& options, const RankHome& home,
                                const NetCluster* cluster, std::vector<Record>* records,
                                uint64_t* wrong);

}  // namespace shunt::bench
