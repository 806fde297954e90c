// The other members of the cluster, as the control loop last said.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "daemon/cluster/peer_table.h"
#include "daemon/metrics/collector.h"

namespace shunt::daemon::metrics {

// Thread-safe.
struct Collector::Peers {
 public:
  void Set(std::vector<cluster::PeerTable::Row> rows) {
    const std::lock_guard lock(mutex_);
    rows_ = std::move(rows);
  }
  std::vector<cluster::PeerTable::Row> Get() const {
    const std::lock_guard lock(mutex_);
    return rows_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<cluster::PeerTable::Row> rows_;
};

}  // namespace shunt::daemon::metrics
