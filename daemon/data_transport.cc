#include "daemon/data_transport.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/transport/tcp/tcp_transport.h"
#ifdef SHUNT_HAVE_UCX
#include "runtime/transport/ucx/ucx_transport.h"
#endif

namespace shunt::daemon {
namespace {

constexpr int64_t kRefusalLinesMax = 20;  // in one go
constexpr int64_t kRefusalLineNs = 1'000'000'000;

}  // namespace

std::function<void(const absl::Status&)> RefusalLog() {
  return [paid_until_ns = int64_t{0}, left_out = 0](const absl::Status& why) mutable {
    const int64_t now = NowNs();
    paid_until_ns = std::max(paid_until_ns, now) + kRefusalLineNs;
    if (paid_until_ns - now > kRefusalLinesMax * kRefusalLineNs) {
      paid_until_ns -= kRefusalLineNs;
      ++left_out;
      return;
    }
    LogWarn("data connection refused",
            {{"why", std::string(why.message())}, {"left_out", std::exchange(left_out, 0)}});
  };
}

absl::StatusOr<std::unique_ptr<transport::PeerTransport>> MakeDataTransport(
    const cluster::ClusterConfig& config, const transport::TcpOptions& tcp) {
  if (config.transport == cluster::DataTransport::kTcp) return transport::TcpTransport::Create(tcp);
#ifdef SHUNT_HAVE_UCX
  transport::UcxOptions options;
  options.bootstrap = tcp;
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
