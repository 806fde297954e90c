// The two sides of a comparison, each started as users start it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/harness/job.h"
#include "bench/harness/layout.h"
#include "bench/harness/net_cluster.h"
#include "bench/harness/operation.h"
#include "bench/harness/private_daemon.h"

namespace shunt::bench {

// The ways in which `peer` can do `op`; the fastest one stands for it. One empty name if there is
// one way.
std::vector<std::string> PeerVariants(const std::string& peer, Operation op);

// OpenMPI and MPICH through their mpirun with its default binding (--oversubscribe only with more
// ranks than cores); the others as processes that meet in `directory`. Only those go between nodes.
absl::StatusOr<std::unique_ptr<Job>> StartPeer(const std::string& peer, const Layout& layout,
                                               const NetCluster* cluster,
                                               const std::string& directory);

// Rank processes over libshunt.
absl::StatusOr<std::unique_ptr<Job>> StartShunt(const Layout& layout, const NetCluster* cluster,
                                                const Daemons& daemons);

}  // namespace shunt::bench
