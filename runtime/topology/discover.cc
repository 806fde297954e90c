// The only file that sees hwloc.
#include <hwloc.h>

#include <memory>

#include "runtime/topology/topology.h"

namespace shunt::topology {
namespace {

CpuList ToCpuList(hwloc_const_bitmap_t bitmap) {
  CpuList cpus;
  if (bitmap == nullptr) return cpus;
  for (int cpu = hwloc_bitmap_next(bitmap, -1); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

absl::StatusOr<Topology> Discover() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return absl::InternalError("hwloc: cannot start");
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> topology(
      raw, hwloc_topology_destroy);
  // Only CPUs and memory are wanted: no caches, no I/O devices. Those we may not use are left out.
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(raw) != 0) return absl::InternalError("hwloc: cannot read this machine");

  Topology result;
  result.cpus = ToCpuList(hwloc_topology_get_allowed_cpuset(raw));
  // Also what `taskset` or a cgroup left us.
  const hwloc_bitmap_t bound = hwloc_bitmap_alloc();
  if (hwloc_get_cpubind(raw, bound, HWLOC_CPUBIND_PROCESS) == 0 && !hwloc_bitmap_iszero(bound)) {
    hwloc_bitmap_and(bound, bound, hwloc_topology_get_allowed_cpuset(raw));
    if (!hwloc_bitmap_iszero(bound)) result.cpus = ToCpuList(bound);
  }
  hwloc_bitmap_free(bound);

  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    result.numa_nodes.push_back({static_cast<int>(node->os_index), ToCpuList(node->cpuset),
                                 node->attr->numanode.local_memory});
    result.memory_bytes += node->attr->numanode.local_memory;
  }
  if (result.cpus.empty() || result.numa_nodes.empty()) {
    return absl::InternalError("hwloc: found no CPU or no NUMA node that we may use");
  }
  return result;
}

}  // namespace shunt::topology
