// What the files that see gRPC share.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "daemon/cluster/peer_rpc.h"

namespace shunt::cluster {

inline absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

inline std::chrono::system_clock::time_point After(std::chrono::nanoseconds timeout) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout);
}

inline std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const Credentials& credentials) {
  if (!credentials.tls()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({credentials.ca, credentials.key, credentials.cert});
}

// A channel that finds out soon that its peer is gone or back. `keepalive`: a peer that does not
// answer for that long is lost, if a call is in flight.
inline std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                                  const Credentials& credentials,
                                                  const std::string& tls_name,
                                                  std::chrono::milliseconds keepalive) {
  grpc::ChannelArguments arguments;
  // gRPC counts reconnecting from the last attempt: the third is how long an attempt may take.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(keepalive.count() / 2));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(keepalive.count() / 2));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Daemons reach each other directly, whatever http_proxy says.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  if (!tls_name.empty()) arguments.SetSslTargetNameOverride(tls_name);
  return grpc::CreateCustomChannel(address, ClientCredentials(credentials), arguments);
}

}  // namespace shunt::cluster
