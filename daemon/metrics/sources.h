// Where the numbers come from. All of it is the daemon's, and outlives the collector.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/cluster/peer_table.h"
#include "daemon/communicator_table.h"
#include "daemon/probe.h"
#include "daemon/session_table.h"
#include "daemon/transfer/store_regions.h"
#include "daemon/transfer/transfer_table.h"
#include "runtime/memory/region_table.h"
#include "runtime/storage/store_tally.h"
#include "runtime/transport/link_tally.h"

namespace shunt::daemon::metrics {

struct Sources {
  std::string version;
  const Probe* probe = nullptr;
  SessionTable* sessions = nullptr;
  memory::RegionTable* regions = nullptr;
  CommunicatorTable* communicators = nullptr;
  StoreRegions* stores = nullptr;
  TransferTable* transfers = nullptr;
  const storage::StoreTallies* store_tallies = nullptr;
  // Null without a cluster.
  const transport::LinkTallies* links = nullptr;
  // Bytes a second of every link, as configured; 0: measured. And what the interface says of
  // itself, for a link that was not measured; 0: nothing.
  uint64_t link_capacity = 0;
  uint64_t interface_capacity = 0;
  // The other members; called on the control loop. Empty without a cluster.
  std::function<std::vector<cluster::PeerTable::Row>()> peers;
};

}  // namespace shunt::daemon::metrics
