#include "tools/admin_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"
#include "shunt/v1/admin.grpc.pb.h"

namespace shunt::tools {
namespace {

constexpr auto kTimeout = std::chrono::seconds(10);
// The daemon waits for other nodes meanwhile.
constexpr auto kRecordsTimeout = std::chrono::seconds(20);
// Records of many nodes are large.
constexpr int kAnswerBytesMax = 1 << 30;
constexpr auto kConnectTimeout = std::chrono::seconds(5);

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--address needs ", flag,
                     " FILE: daemons talk over the network to whom they know by certificate only"));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(flag, ": cannot open ", path));
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string Target::Words() const {
  return absl::StrCat("the daemon at ", remote() ? address : socket);
}

struct AdminClient::Impl {
  Target target;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Admin::Stub> stub;
  bool unreachable = false;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                                                       const Request&, Response*),
                               const Request& request = Request(),
                               std::chrono::seconds timeout = kTimeout) {
    unreachable = true;
    SHUNT_RETURN_IF_ERROR(target.remote() ? Connect() : Probe());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    Response response;
    const grpc::Status status = (stub.get()->*method)(&context, request, &response);
    if (status.ok()) {
      unreachable = false;
      return response;
    }
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded) {
      return absl::Status(
          code, absl::StrCat(target.Words(), " did not answer: ", status.error_message()));
    }
    unreachable = false;
    if (code == absl::StatusCode::kUnimplemented) {
      return absl::UnimplementedError(absl::StrCat(
          target.Words(), " does not know this request",
          target.remote() ? ", or does not serve it over the network: its admin.remote names who "
                            "may ask"
                          : ": it is of an earlier version; restart it after an upgrade"));
    }
    return absl::Status(code, status.error_message());
  }

  // A plain connection first: its errors are clearer than gRPC's.
  absl::Status Probe() const {
    const absl::Status status = ConnectUnix(target.socket, SocketType::kStream).status();
    if (status.ok()) return status;
    if (absl::IsPermissionDenied(status)) {
      return absl::PermissionDeniedError(absl::StrCat(
          "this user may not connect to the daemon at ", target.socket, " (", status.message(),
          ").\nRun as a user that may write to the socket, or widen the daemon's socket_mode."));
    }
    return absl::Status(
        status.code(),
        absl::StrCat("no daemon answers at ", target.socket, " (", status.message(),
                     ").\nStart it with \"shuntd --socket ", target.socket,
                     " &\", or name another socket with --socket or $SHUNT_SOCKET."));
  }

  absl::Status Connect() const {
    if (channel->WaitForConnected(std::chrono::system_clock::now() + kConnectTimeout)) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(absl::StrCat(
        "no daemon answers at ", target.address,
        " that takes this certificate and has one that --ca vouches for, made out for ",
        target.node.empty() ? "that host" : absl::StrCat("\"", target.node, "\""),
        ".\nThe address is its cluster.listen; it must have cluster.tls_* set. If its certificate "
        "is "
        "made out for its node's name, name that with --node."));
  }
};

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Make(Target target) {
  auto impl = std::make_unique<Impl>();
  impl->target = std::move(target);
  const Target& to = impl->target;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  if (to.remote()) {
    grpc::SslCredentialsOptions options;
    SHUNT_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem("--ca", to.ca));
    SHUNT_ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem("--cert", to.cert));
    SHUNT_ASSIGN_OR_RETURN(options.pem_private_key, ReadPem("--key", to.key));
    if (!to.node.empty()) arguments.SetSslTargetNameOverride(to.node);
    impl->channel = grpc::CreateCustomChannel(to.address, grpc::SslCredentials(options), arguments);
  } else {
    impl->channel =
        grpc::CreateCustomChannel("unix:" + std::filesystem::absolute(to.socket).string(),
                                  grpc::InsecureChannelCredentials(), arguments);
  }
  impl->stub = v1::Admin::NewStub(impl->channel);
  return std::unique_ptr<AdminClient>(new AdminClient(std::move(impl)));
}

AdminClient::AdminClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

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

absl::StatusOr<v1::ListLinksResponse> AdminClient::Links() {
  return impl_->Ask(&v1::Admin::Stub::ListLinks);
}

absl::StatusOr<v1::ListTransfersResponse> AdminClient::Transfers() {
  return impl_->Ask(&v1::Admin::Stub::ListTransfers);
}

absl::StatusOr<v1::GetRecordsResponse> AdminClient::Records(const v1::GetRecordsRequest& request) {
  return impl_->Ask(&v1::Admin::Stub::GetRecords, request, kRecordsTimeout);
}

absl::Status AdminClient::Drain(const v1::DrainRequest& request) {
  return impl_->Ask(&v1::Admin::Stub::Drain, request).status();
}

bool AdminClient::unreachable() const { return impl_->unreachable; }

const Target& AdminClient::target() const { return impl_->target; }

}  // namespace shunt::tools
