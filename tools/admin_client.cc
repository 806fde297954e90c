#include "tools/admin_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "runtime/core/unix_socket.h"
#include "shunt/v1/admin.grpc.pb.h"

namespace shunt::tools {
namespace {

constexpr auto kTimeout = std::chrono::seconds(10);

}  // namespace

struct AdminClient::Impl {
  std::string socket;
  std::unique_ptr<v1::Admin::Stub> stub;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                                                       const Request&, Response*),
                               const Request& request = Request()) {
    // A plain connection first: its errors are clearer than gRPC's.
    if (absl::StatusOr<UniqueFd> probe = ConnectUnix(socket, SocketType::kStream); !probe.ok()) {
      const bool denied = absl::IsPermissionDenied(probe.status());
      if (denied) {
        return absl::PermissionDeniedError(absl::StrCat(
            "this user may not connect to the daemon at ", socket, " (", probe.status().message(),
            ").\nRun as a user that may write to the socket, or widen the daemon's socket_mode."));
      }
      return absl::Status(
          probe.status().code(),
          absl::StrCat("no daemon answers at ", socket, " (", probe.status().message(),
                       ").\nStart it with \"shuntd --socket ", socket,
                       " &\", or name another socket with --socket or $SHUNT_SOCKET."));
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTimeout);
    Response response;
    const grpc::Status status = (stub.get()->*method)(&context, request, &response);
    if (status.ok()) return response;
    return absl::Status(
        static_cast<absl::StatusCode>(status.error_code()),
        absl::StrCat("the daemon at ", socket, " did not answer: ", status.error_message()));
  }
};

AdminClient::AdminClient(const std::string& socket) : impl_(std::make_unique<Impl>()) {
  impl_->socket = socket;
  const std::string target = "unix:" + std::filesystem::absolute(socket).string();
  impl_->stub = v1::Admin::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
}

AdminClient::~AdminClient() = default;

absl::StatusOr<v1::GetStatusResponse> AdminClient::Status() {
  return impl_->Ask(&v1::Admin::Stub::GetStatus);
}

absl::StatusOr<v1::ListSessionsResponse> AdminClient::Sessions() {
  return impl_->Ask(&v1::Admin::Stub::ListSessions);
}

absl::StatusOr<v1::ListCommunicatorsResponse> AdminClient::Communicators() {
  return impl_->Ask(&v1::Admin::Stub::ListCommunicators);
}

absl::StatusOr<v1::GetTopologyResponse> AdminClient::Topology() {
  return impl_->Ask(&v1::Admin::Stub::GetTopology);
}

absl::StatusOr<v1::ExplainResponse> AdminClient::Explain(const v1::ExplainRequest& request) {
  return impl_->Ask(&v1::Admin::Stub::Explain, request);
}

}  // namespace shunt::tools
