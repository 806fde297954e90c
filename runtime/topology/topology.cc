#include "runtime/topology/topology.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/core/status.h"

namespace shunt::topology {
namespace {

// Far beyond any machine; keeps a hostile "0-4000000000" from filling memory.
constexpr int kCpuMax = 65535;

CpuList Common(const CpuList& a, const CpuList& b) {
  CpuList both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

}  // namespace

absl::StatusOr<CpuList> ParseCpuList(std::string_view text) {
  CpuList cpus;
  if (text.empty()) return cpus;
  for (absl::string_view part : absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    const bool range = part.find('-') != absl::string_view::npos;
    int first = -1;
    int last = -1;
    if (!absl::SimpleAtoi(ends.first, &first) ||
        !absl::SimpleAtoi(range ? ends.second : ends.first, &last) || first < 0 || last < first ||
        last > kCpuMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "CPU list \"", absl::string_view(text.data(), text.size()), "\": \"", part,
          "\" is neither a CPU nor a range of CPUs; expected a form such as \"0-3,8\""));
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string FormatCpuList(const CpuList& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (end > i) absl::StrAppend(&text, "-", cpus[end]);
    i = end + 1;
  }
  return text;
}

absl::StatusOr<CpuList> WorkerCpus(const Topology& topology, const CpuList& budget,
                                   const std::vector<int>& numa_nodes) {
  CpuList cpus = budget.empty() ? topology.cpus : budget;
  for (const int cpu : cpus) {
    if (!std::binary_search(topology.cpus.begin(), topology.cpus.end(), cpu)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "CPU ", cpu, " is not among those of this process, ", FormatCpuList(topology.cpus)));
    }
  }
  if (!numa_nodes.empty()) {
    CpuList near;
    for (const int index : numa_nodes) {
      const auto node = std::find_if(topology.numa_nodes.begin(), topology.numa_nodes.end(),
                                     [index](const NumaNode& n) { return n.index == index; });
      if (node == topology.numa_nodes.end()) {
        return absl::InvalidArgumentError(absl::StrCat("NUMA node ", index, ": this machine has ",
                                                       topology.numa_nodes.size(), " of them"));
      }
      near.insert(near.end(), node->cpus.begin(), node->cpus.end());
    }
    std::sort(near.begin(), near.end());
    near.erase(std::unique(near.begin(), near.end()), near.end());
    cpus = Common(cpus, near);
  }
  if (cpus.empty()) {
    return absl::InvalidArgumentError(
        "no CPU is left for workers: CPU budget and NUMA nodes have none in common");
  }
  return cpus;
}

CpuList CpusOfWorker(const Topology& topology, const CpuList& cpus, int index) {
  std::vector<CpuList> by_node;
  for (const NumaNode& node : topology.numa_nodes) {
    CpuList near = Common(cpus, node.cpus);
    if (!near.empty()) by_node.push_back(std::move(near));
  }
  return by_node.empty() ? cpus : by_node[static_cast<size_t>(index) % by_node.size()];
}

absl::Status BindThread(const CpuList& cpus) {
  if (cpus.empty()) return absl::OkStatus();
  const int count = cpus.back() + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  const size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set);
  const int error = ::pthread_setaffinity_np(::pthread_self(), bytes, set);
  CPU_FREE(set);
  return error == 0
             ? absl::OkStatus()
             : ErrnoStatus(error, absl::StrCat("binding a thread to CPUs ", FormatCpuList(cpus)));
}

}  // namespace shunt::topology
