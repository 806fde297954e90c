// What this machine has: CPUs that we may use and NUMA nodes, as hwloc finds them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shunt::topology {

// CPU numbers of the operating system, ascending, without repeats.
using CpuList = std::vector<int>;

// Reads the form of cpuset files, e.g. "0-3,8". "" is the empty list. INVALID_ARGUMENT names what
// is wrong.
absl::StatusOr<CpuList> ParseCpuList(std::string_view text);
std::string FormatCpuList(const CpuList& cpus);

struct NumaNode {
  int index = 0;
  CpuList cpus;
  uint64_t memory_bytes = 0;
};

struct Topology {
  CpuList cpus;  // that this process may run on
  uint64_t memory_bytes = 0;
  std::vector<NumaNode> numa_nodes;  // at least one
};

// Takes milliseconds: once, at the start. INTERNAL if the machine can't be read.
absl::StatusOr<Topology> Discover();

// The CPUs for worker threads: `budget` (empty: all that we may use), cut down to `numa_nodes`
// (empty: all). INVALID_ARGUMENT if the budget names a CPU that we may not use, a node that isn't
// there, or if nothing is left.
absl::StatusOr<CpuList> WorkerCpus(const Topology& topology, const CpuList& budget,
                                   const std::vector<int>& numa_nodes);

// Which of `cpus` worker `index` may run on: those of one NUMA node, so that its memory stays near;
// workers take the nodes in turn. `cpus` as WorkerCpus gave it.
CpuList CpusOfWorker(const Topology& topology, const CpuList& cpus, int index);

// Binds the calling thread. INTERNAL if the kernel refuses.
absl::Status BindThread(const CpuList& cpus);

}  // namespace shunt::topology
