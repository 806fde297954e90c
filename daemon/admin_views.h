// What the files of the Admin service share.
#pragma once

#include "daemon/cluster/peer_table.h"
#include "daemon/session.h"
#include "shunt/v1/admin.pb.h"

namespace shunt::daemon {

// Root and the daemon's own user see what all users have.
bool SeesAll(const Peer& peer);

void ToProto(const cluster::PeerTable::Row& row, v1::NodeStatus* node);

}  // namespace shunt::daemon
