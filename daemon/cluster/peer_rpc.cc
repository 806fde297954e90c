#include "daemon/cluster/peer_rpc.h"

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/client_call.h"
#include "daemon/cluster/grpc_util.h"
#include "daemon/cluster/incoming_call.h"
#include "runtime/core/status.h"
#include "shunt/v1/peer.grpc.pb.h"

namespace shunt::cluster {
namespace {

// A killed daemon resets its connections at once; this is for a node that is cut off.
constexpr auto kKeepalive = std::chrono::milliseconds(2000);
constexpr int kPingIntervalMinMs = 500;
constexpr int kRequestBytesMax = 16 << 20;
constexpr auto kShutdownGrace = std::chrono::milliseconds(200);

class Client : public PeerClient {
 public:
  Client(CallTracker* tracker, const std::string& address, const Credentials& credentials,
         const std::string& tls_name)
      : stub_(v1::Peer::NewStub(MakeChannel(address, credentials, tls_name, kKeepalive))),
        calls_(tracker) {}

  void Ping(const v1::PingRequest& request, Timeout timeout,
            RpcDone<v1::PingResponse> done) override {
    calls_.Unary(stub_->async(), &Async::Ping, request, timeout, std::move(done));
  }
  void Hello(const v1::HelloRequest& request, Timeout timeout,
             RpcDone<v1::HelloResponse> done) override {
    calls_.Unary(stub_->async(), &Async::Hello, request, timeout, std::move(done));
  }
  void Watch(const v1::WatchRequest& request, Timeout timeout,
             RpcDone<v1::WatchResponse> done) override {
    calls_.Unary(stub_->async(), &Async::Watch, request, timeout, std::move(done));
  }
  void Rendezvous(const v1::RendezvousRequest& request, Timeout timeout,
                  RpcDone<v1::RendezvousResponse> done) override {
    calls_.Unary(stub_->async(), &Async::Rendezvous, request, timeout, std::move(done));
  }
  void Withdraw(const v1::WithdrawRequest& request, Timeout timeout,
                RpcDone<v1::WithdrawResponse> done) override {
    calls_.Unary(stub_->async(), &Async::Withdraw, request, timeout, std::move(done));
  }
  void CallStatus(const v1::CallStatusRequest& request, Timeout timeout,
                  RpcDone<v1::CallStatusResponse> done) override {
    calls_.Unary(stub_->async(), &Async::CallStatus, request, timeout, std::move(done));
  }
  void OpenSpan(const v1::OpenSpanRequest& request, Timeout timeout,
                RpcDone<v1::OpenSpanResponse> done) override {
    calls_.Unary(stub_->async(), &Async::OpenSpan, request, timeout, std::move(done));
  }
  void FetchSection(const v1::FetchPeerSectionRequest& request, Timeout timeout,
                    RpcDone<v1::FetchPeerSectionResponse> done) override {
    calls_.Unary(stub_->async(), &Async::FetchSection, request, timeout, std::move(done));
  }
  void NotifyAgent(const v1::NotifyAgentRequest& request, Timeout timeout,
                   RpcDone<v1::NotifyAgentResponse> done) override {
    calls_.Unary(stub_->async(), &Async::NotifyAgent, request, timeout, std::move(done));
  }
  void Records(const v1::PeerRecordsRequest& request, Timeout timeout,
               RpcDone<v1::PeerRecordsResponse> done) override {
    calls_.Unary(stub_->async(), &Async::Records, request, timeout, std::move(done));
  }

 private:
  using Async = v1::Peer::StubInterface::async_interface;

  const std::unique_ptr<v1::Peer::Stub> stub_;
  ClientCalls calls_;
};

class Service : public v1::Peer::CallbackService {
 public:
  Service(daemon::EventLoop* loop, PeerHandler* handler) : loop_(loop), handler_(handler) {}

  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext* context, const v1::PingRequest* in,
                                 v1::PingResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnPing);
  }
  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context, const v1::HelloRequest* in,
                                  v1::HelloResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnHello);
  }
  grpc::ServerUnaryReactor* Watch(grpc::CallbackServerContext* context, const v1::WatchRequest* in,
                                  v1::WatchResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnWatch);
  }
  grpc::ServerUnaryReactor* Rendezvous(grpc::CallbackServerContext* context,
                                       const v1::RendezvousRequest* in,
                                       v1::RendezvousResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnRendezvous);
  }
  grpc::ServerUnaryReactor* Withdraw(grpc::CallbackServerContext* context,
                                     const v1::WithdrawRequest* in,
                                     v1::WithdrawResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnWithdraw);
  }
  grpc::ServerUnaryReactor* CallStatus(grpc::CallbackServerContext* context,
                                       const v1::CallStatusRequest* in,
                                       v1::CallStatusResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnCallStatus);
  }
  grpc::ServerUnaryReactor* OpenSpan(grpc::CallbackServerContext* context,
                                     const v1::OpenSpanRequest* in,
                                     v1::OpenSpanResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnOpenSpan);
  }
  grpc::ServerUnaryReactor* FetchSection(grpc::CallbackServerContext* context,
                                         const v1::FetchPeerSectionRequest* in,
                                         v1::FetchPeerSectionResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnFetchSection);
  }
  grpc::ServerUnaryReactor* NotifyAgent(grpc::CallbackServerContext* context,
                                        const v1::NotifyAgentRequest* in,
                                        v1::NotifyAgentResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnNotifyAgent);
  }
  grpc::ServerUnaryReactor* Records(grpc::CallbackServerContext* context,
                                    const v1::PeerRecordsRequest* in,
                                    v1::PeerRecordsResponse* out) override {
    return Accept(context, in, out, &PeerHandler::OnRecords);
  }

 private:
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Accept(grpc::CallbackServerContext* context, const Request* in,
                                   Response* out,
                                   void (PeerHandler::*on)(IncomingPtr<Request, Response>)) {
    const auto call = Incoming<Request, Response>::Make(loop_, out);
    call->request = *in;
    call->from = context->peer();
    if (const auto auth = context->auth_context(); auth != nullptr) {
      for (const grpc::string_ref& name : auth->FindPropertyValues("x509_subject_alternative_name"))
        call->tls_names.emplace_back(name.data(), name.size());
    }
    loop_->Post([handler = handler_, on, call] { (handler->*on)(call); });
    return call.get();
  }

  daemon::EventLoop* const loop_;
  PeerHandler* const handler_;
};

class Server : public PeerServer {
 public:
  Server(daemon::EventLoop* loop, PeerHandler* handler) : service_(loop, handler) {}
  ~Server() override {
    if (server_ != nullptr) server_->Shutdown(After(kShutdownGrace));
  }

  absl::Status Listen(const std::string& listen, const Credentials& credentials,
                      grpc::Service* more) {
    std::shared_ptr<grpc::ServerCredentials> how = grpc::InsecureServerCredentials();
    if (credentials.tls()) {
      grpc::SslServerCredentialsOptions options(
          GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
      options.pem_root_certs = credentials.ca;
      options.pem_key_cert_pairs.push_back({credentials.key, credentials.cert});
      how = grpc::SslServerCredentials(options);
    }
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen, how, &port);
    builder.RegisterService(&service_);
    if (more != nullptr) builder.RegisterService(more);
    builder.SetMaxReceiveMessageSize(kRequestBytesMax);
    // Two daemons on one port would each get some of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kPingIntervalMinMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(absl::StrCat(
          "cluster.listen: cannot listen on ", listen,
          credentials.tls() ? "; expected a free address of this machine, and a certificate that "
                              "fits its key"
                            : "; expected a free address of this machine"));
    }
    port_ = static_cast<uint16_t>(port);
    return absl::OkStatus();
  }

  uint16_t port() const override { return port_; }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
};

absl::StatusOr<std::string> ReadFile(const char* key, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(key, ": cannot open ", path));
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

absl::StatusOr<Credentials> LoadCredentials(const ClusterConfig& config) {
  Credentials credentials;
  if (!config.tls()) return credentials;
  SHUNT_ASSIGN_OR_RETURN(credentials.cert, ReadFile("cluster.tls_cert", config.tls_cert));
  SHUNT_ASSIGN_OR_RETURN(credentials.key, ReadFile("cluster.tls_key", config.tls_key));
  SHUNT_ASSIGN_OR_RETURN(credentials.ca, ReadFile("cluster.tls_ca", config.tls_ca));
  return credentials;
}

std::unique_ptr<PeerClient> PeerClient::Make(CallTracker* tracker, const std::string& address,
                                             const Credentials& credentials,
                                             const std::string& tls_name) {
  return std::make_unique<Client>(tracker, address, credentials, tls_name);
}

absl::StatusOr<std::unique_ptr<PeerServer>> PeerServer::Start(const std::string& listen,
                                                              const Credentials& credentials,
                                                              daemon::EventLoop* loop,
                                                              PeerHandler* handler,
                                                              grpc::Service* more) {
  auto server = std::make_unique<Server>(loop, handler);
  SHUNT_RETURN_IF_ERROR(server->Listen(listen, credentials, more));
  return server;
}

}  // namespace shunt::cluster
