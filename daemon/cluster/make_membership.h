#pragma once

#include <memory>

#include "daemon/cluster/call_tracker.h"
#include "daemon/cluster/config.h"
#include "daemon/cluster/membership.h"
#include "daemon/cluster/peer_rpc.h"
#include "daemon/cluster/peer_table.h"

namespace shunt::cluster {

// What config.membership says. `tracker` outlives it.
std::unique_ptr<Membership> MakeMembership(const ClusterConfig& config, const SelfInfo& self,
                                           const Credentials& credentials, CallTracker* tracker);

}  // namespace shunt::cluster
