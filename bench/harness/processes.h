// A job whose ranks are programs that we start: each alone, on the node that the layout gives it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/harness/job.h"
#include "bench/harness/layout.h"
#include "bench/harness/net_cluster.h"

namespace shunt::bench {

// Starts command(rank) --control PATH --rank R --address A for each rank. `cluster` null: all on
// this node, with the loopback address.
absl::StatusOr<std::unique_ptr<Job>> StartProcesses(
    const std::string& name, const Layout& layout, const NetCluster* cluster,
    const std::function<std::vector<std::string>(int rank)>& command);

}  // namespace shunt::bench
