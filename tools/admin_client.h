// Asks a daemon. The only part of shuntctl that sees gRPC.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "shunt/v1/admin.pb.h"

namespace shunt::tools {

class AdminClient {
 public:
  explicit AdminClient(const std::string& socket);
  ~AdminClient();

  // Errors say what to do next. UNAVAILABLE: no daemon answers.
  absl::StatusOr<v1::GetStatusResponse> Status();
  absl::StatusOr<v1::ListSessionsResponse> Sessions();
  absl::StatusOr<v1::ListCommunicatorsResponse> Communicators();
  absl::StatusOr<v1::GetTopologyResponse> Topology();
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shunt::tools
