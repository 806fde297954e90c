#include "daemon/data_transport.h"

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/transport/tcp/tcp_transport.h"
#ifdef SHUNT_HAVE_UCX
#include "runtime/transport/ucx/ucx_transport.h"
#endif

namespace shunt::daemon {

absl::StatusOr<std::unique_ptr<transport::PeerTransport>> MakeDataTransport(
    const cluster::ClusterConfig& config, const transport::TcpOptions& tcp) {
  if (config.transport == cluster::DataTransport::kTcp) return transport::TcpTransport::Create(tcp);
#ifdef SHUNT_HAVE_UCX
  transport::UcxOptions options;
  options.bootstrap = tcp;
  options.engine = tcp.engine;
  options.transports = config.rdma_transports;
  options.devices = config.rdma_devices;
  auto made = transport::UcxTransport::Create(options);
  if (!made.ok()) {
    return absl::Status(made.status().code(),
                        absl::StrCat("cluster.transport is \"rdma\": ", made.status().message()));
  }
  return *std::move(made);
#else
  return absl::UnimplementedError(
      "cluster.transport is \"rdma\", but this shuntd was built without UCX; expected \"tcp\"");
#endif
}

}  // namespace shunt::daemon
