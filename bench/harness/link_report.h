// What a benchmark over nodes says of their links: rate, fraction of it, bytes that were carried.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/harness/job.h"
#include "bench/harness/layout.h"
#include "bench/harness/net_cluster.h"
#include "bench/harness/record.h"

namespace shunt::bench {

// On one node (no cluster) it says nothing. Not thread-safe.
class LinkReport {
 public:
  LinkReport() = default;
  // Measures the rate between the first two nodes, about 4 s. Without iperf3 there is no rate, and
  // stderr says so.
  LinkReport(NetCluster* cluster, const Layout& layout);

  // The words for a table's head; empty on one node.
  std::string Describe() const;
  // Runs the command. `nic_bytes`: what the busiest node's interface carried in its busier
  // direction, for each operation; 0 on one node.
  absl::StatusOr<Measurement> Run(Job& job, const Command& command, double* nic_bytes) const;
  // Bytes that the links had to carry, against what they could have in that time; 0 if not known.
  double LineFraction(const Problem& problem, double time_us) const;
  // Adds nodes, and between nodes link_rate, link_gbps, line_fraction, nic_bytes, nic_ratio.
  // `time_us` and `nic_bytes` 0: not measured.
  void AddTo(Record* record, const Problem& problem, double time_us, double nic_bytes) const;

 private:
  NetCluster* cluster_ = nullptr;
  Layout layout_;
  NetCluster::Link link_;
};

}  // namespace shunt::bench
