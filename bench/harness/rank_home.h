// Where a rank of Shunt's side lives: its node, and its daemon's socket.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "bench/harness/layout.h"
#include "bench/harness/net_cluster.h"
#include "bench/harness/private_daemon.h"

namespace shunt::bench {

// Borrows what it is given.
class RankHome {
 public:
  RankHome(const Layout& layout, const NetCluster* cluster, const Daemons& daemons)
      : layout_(layout), cluster_(cluster), daemons_(daemons) {}

  const std::string& SocketOf(int rank) const { return daemons_[layout_.NodeOf(rank)].socket(); }
  // In a rank's forked process, first.
  absl::Status Enter(int rank) const {
    if (cluster_ == nullptr) return absl::OkStatus();
    return EnterNetwork(cluster_->nodes()[static_cast<size_t>(layout_.NodeOf(rank))].network.get());
  }

 private:
  Layout layout_;
  const NetCluster* cluster_;
  const Daemons& daemons_;
};

}  // namespace shunt::bench
