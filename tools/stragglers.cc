#include "tools/stragglers.h"

#include <algorithm>
#include <map>

#include "tools/world_records.h"

namespace shunt::tools {

std::vector<CommunicatorLateness> FindStragglers(const v1::GetRecordsResponse& records) {
  std::vector<CommunicatorLateness> result;
  for (const WorldCommunicator& c : Communicators(records)) {
    const auto world = static_cast<size_t>(c.first->world_size());
    if (world < 2 || c.ranks.size() != world) continue;
    CommunicatorLateness out;
    out.name = c.first->name();
    out.job = c.first->job();
    out.state = c.failed ? "failed" : c.first->state();
    out.epoch = c.first->epoch();
    std::map<uint64_t, std::vector<int64_t>> came;  // by sequence, those that have come
    std::map<uint64_t, size_t> count;
    size_t index = 0;
    for (const auto& [rank, of] : c.ranks) {
      out.uncertainty_ns = std::max(out.uncertainty_ns, of.node->clock_uncertainty_ns());
      for (const v1::CallRecord& call : of.record->calls()) {
        if (std::get<0>(KeyOf(rank, call)) >= 0 || call.posted_ns() == 0) continue;
        std::vector<int64_t>& all = came[call.sequence()];
        all.resize(world);
        if (all[index] == 0) ++count[call.sequence()];
        all[index] = OnFirstClock(*of.node, call.posted_ns());
      }
      ++index;
    }
    std::vector<std::vector<int64_t>> arrivals;
    for (auto& [sequence, all] : came) {
      if (count[sequence] == world) arrivals.push_back(std::move(all));
    }
    if (arrivals.empty()) continue;
    out.operations = arrivals.size();
    const auto lateness = recorder::Lateness(static_cast<int>(world), arrivals);
    index = 0;
    for (const auto& [rank, of] : c.ranks) {
      out.ranks.push_back({rank, of.node->node(), of.record->pid(), lateness[index++]});
    }
    std::stable_sort(out.ranks.begin(), out.ranks.end(), [](const auto& a, const auto& b) {
      return a.lateness.median_ns > b.lateness.median_ns;
    });
    result.push_back(std::move(out));
  }
  return result;
}

}  // namespace shunt::tools
