// The carrier of payload between daemons that the configuration asks for.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/cluster/config.h"
#include "runtime/transport/peer_transport.h"

namespace shunt::daemon {

// NOT_FOUND if there is no RDMA device for "rdma", UNIMPLEMENTED if this build has none;
// ALREADY_EXISTS if the port is taken.
absl::StatusOr<std::unique_ptr<transport::PeerTransport>> MakeDataTransport(
    const cluster::ClusterConfig& config, const transport::TcpOptions& tcp);

// For TcpOptions::on_refused: writes each to the log, but not more than strangers should be able to
// fill it with; what was left out is counted in the next line.
std::function<void(const absl::Status&)> RefusalLog();

}  // namespace shunt::daemon
