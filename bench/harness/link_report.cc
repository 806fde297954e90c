#include "bench/harness/link_report.h"

#include <cstdio>

#include "absl/strings/str_format.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

constexpr int kMeasureSeconds = 3;

}  // namespace

LinkReport::LinkReport(NetCluster* cluster, const Layout& layout)
    : cluster_(cluster), layout_(layout) {
  if (cluster == nullptr || cluster->rank_nodes() < 2) return;
  auto link = cluster->MeasureLink(0, 1, kMeasureSeconds);
  if (link.ok()) {
    link_ = *std::move(link);
  } else {
    std::fprintf(stderr, "no link rate: %s\n", std::string(link.status().message()).c_str());
  }
}

std::string LinkReport::Describe() const {
  if (cluster_ == nullptr) return "";
  const std::string& rate = cluster_->link_rate();
  return absl::StrFormat("%d nodes, links %s: %.4f GB/s by iperf3, %s", layout_.nodes,
                         rate.empty() ? "unshaped" : rate, link_.gbps,
                         link_.congestion_control.empty() ? "?" : link_.congestion_control);
}

absl::StatusOr<Measurement> LinkReport::Run(Job& job, const Command& command,
                                            double* nic_bytes) const {
  *nic_bytes = 0;
  if (cluster_ == nullptr) return job.Run(command);
  SHUNT_ASSIGN_OR_RETURN(const auto before, cluster_->Counters());
  SHUNT_ASSIGN_OR_RETURN(const Measurement m, job.Run(command));
  SHUNT_ASSIGN_OR_RETURN(const auto after, cluster_->Counters());
  if (m.operations > 0) {
    *nic_bytes = static_cast<double>(BusiestLink(before, after, cluster_->rank_nodes())) /
                 static_cast<double>(m.operations);
  }
  return m;
}

double LinkReport::LineFraction(const Problem& problem, double time_us) const {
  const double bytes = LinkBytes(problem, layout_);
  if (bytes <= 0 || link_.gbps <= 0 || time_us <= 0) return 0;
  return bytes / (time_us * 1e3 * link_.gbps);
}

void LinkReport::AddTo(Record* record, const Problem& problem, double time_us,
                       double nic_bytes) const {
  record->Set("nodes", layout_.nodes);
  if (cluster_ == nullptr) return;
  if (!cluster_->link_rate().empty()) record->Set("link_rate", cluster_->link_rate());
  if (link_.gbps > 0) {
    record->Set("link_gbps", link_.gbps).Set("congestion_control", link_.congestion_control);
  }
  const double fraction = LineFraction(problem, time_us);
  if (fraction > 0) record->Set("line_fraction", fraction);
  const double least = LinkBytes(problem, layout_);
  if (nic_bytes > 0) {
    record->Set("nic_bytes", nic_bytes);
    if (least > 0) record->Set("nic_ratio", nic_bytes / least);
  }
}

}  // namespace shunt::bench
