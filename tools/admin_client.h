// Asks a daemon: this node's over its Unix socket, or another's over the network. The only part of
// shuntctl that sees gRPC.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shunt/v1/admin.pb.h"

namespace shunt::tools {

// Where a daemon is.
struct Target {
  std::string socket;
  // Another node's: HOST:PORT of its cluster.listen, and PEM files; empty: the socket counts.
  std::string address;
  std::string ca, cert, key;
  std::string node;  // whom its certificate is made out for; empty: the host of the address
  bool remote() const { return !address.empty(); }
  // "the daemon at ...".
  std::string Words() const;
};

class AdminClient {
 public:
  // INVALID_ARGUMENT, NOT_FOUND: a file that a remote target needs is not named or can't be read.
  static absl::StatusOr<std::unique_ptr<AdminClient>> Make(Target target);
  ~AdminClient();

  // Errors say what to do next. After one, `unreachable` tells whether no daemon answered at all,
  // or it refused.
  absl::StatusOr<v1::GetStatusResponse> Status();
  absl::StatusOr<v1::ListSessionsResponse> Sessions();
  absl::StatusOr<v1::ListCommunicatorsResponse> Communicators();
  absl::StatusOr<v1::GetTopologyResponse> Topology();
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request);
  absl::StatusOr<v1::ListLinksResponse> Links();
  absl::StatusOr<v1::ListTransfersResponse> Transfers();
  // Of all nodes that answer in time: up to 20 s.
  absl::StatusOr<v1::GetRecordsResponse> Records(const v1::GetRecordsRequest& request);
  absl::Status Drain(const v1::DrainRequest& request);

  bool unreachable() const;
  const Target& target() const;

 private:
  struct Impl;
  explicit AdminClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shunt::tools
