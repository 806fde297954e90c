// The two sides of a comparison, each started as users start it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/harness/job.h"
#include "bench/harness/operation.h"

namespace shunt::bench {

// The ways in which `peer` can do `op`; the fastest one stands for it. One empty name if there is
// one way.
std::vector<std::string> PeerVariants(const std::string& peer, Operation op);

// OpenMPI and MPICH through their mpirun with its default binding (--oversubscribe only with more
// ranks than cores); Gloo as processes that meet in `directory`.
absl::StatusOr<std::unique_ptr<Job>> StartPeer(const std::string& peer, int ranks,
                                               const std::string& directory);

// Rank processes over libshunt.
absl::StatusOr<std::unique_ptr<Job>> StartShunt(int ranks, const std::string& socket);

}  // namespace shunt::bench
