// The calls of peer.proto, without gRPC's headers: a client for each peer and one server. Every
// function here is called, and calls back, on the event loop's thread, unless it says otherwise;
// none blocks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/cluster/call_tracker.h"
#include "daemon/cluster/config.h"
#include "shunt/v1/peer.pb.h"

namespace grpc {
class Service;
}

namespace shunt::cluster {

template <typename Response>
using RpcDone = std::function<void(absl::StatusOr<Response>)>;

// How a node shows who it is: PEM texts, all empty for none.
struct Credentials {
  std::string cert, key, ca;
  bool tls() const { return !ca.empty(); }
};
// Reads the files; NOT_FOUND names key and path.
absl::StatusOr<Credentials> LoadCredentials(const ClusterConfig& config);

// A channel to one daemon, connected on demand and kept. Destroying it cancels its calls: their
// callbacks do not come.
class PeerClient {
 public:
  // With TLS the daemon's certificate must be made out for `tls_name`.
  static std::unique_ptr<PeerClient> Make(CallTracker* tracker, const std::string& address,
                                          const Credentials& credentials,
                                          const std::string& tls_name);
  virtual ~PeerClient() = default;

  using Timeout = std::chrono::nanoseconds;
  virtual void Ping(const v1::PingRequest& request, Timeout timeout,
                    RpcDone<v1::PingResponse> done) = 0;
  virtual void Hello(const v1::HelloRequest& request, Timeout timeout,
                     RpcDone<v1::HelloResponse> done) = 0;
  virtual void Watch(const v1::WatchRequest& request, Timeout timeout,
                     RpcDone<v1::WatchResponse> done) = 0;
  virtual void Rendezvous(const v1::RendezvousRequest& request, Timeout timeout,
                          RpcDone<v1::RendezvousResponse> done) = 0;
  virtual void Withdraw(const v1::WithdrawRequest& request, Timeout timeout,
                        RpcDone<v1::WithdrawResponse> done) = 0;
  virtual void CallStatus(const v1::CallStatusRequest& request, Timeout timeout,
                          RpcDone<v1::CallStatusResponse> done) = 0;
  virtual void OpenSpan(const v1::OpenSpanRequest& request, Timeout timeout,
                        RpcDone<v1::OpenSpanResponse> done) = 0;
  virtual void FetchSection(const v1::FetchPeerSectionRequest& request, Timeout timeout,
                            RpcDone<v1::FetchPeerSectionResponse> done) = 0;
  virtual void NotifyAgent(const v1::NotifyAgentRequest& request, Timeout timeout,
                           RpcDone<v1::NotifyAgentResponse> done) = 0;
  virtual void Records(const v1::PeerRecordsRequest& request, Timeout timeout,
                       RpcDone<v1::PeerRecordsResponse> done) = 0;
};

// A call that has come in. It waits, as a record, until somebody replies.
template <typename Request, typename Response>
class IncomingCall {
 public:
  virtual ~IncomingCall() = default;
  Request request;
  Response response;
  std::string from;                    // "ipv4:10.0.0.2:51234"
  std::vector<std::string> tls_names;  // of the caller's certificate
  // Called if the caller gives up or its connection ends before the reply. Without it such a call
  // is replied to with CANCELLED.
  std::function<void()> on_cancel;

  // The first reply counts; it must come.
  virtual void Reply(const absl::Status& status) = 0;
};
template <typename Request, typename Response>
using IncomingPtr = std::shared_ptr<IncomingCall<Request, Response>>;

class PeerHandler {
 public:
  virtual ~PeerHandler() = default;
  virtual void OnPing(IncomingPtr<v1::PingRequest, v1::PingResponse> call) = 0;
  virtual void OnHello(IncomingPtr<v1::HelloRequest, v1::HelloResponse> call) = 0;
  virtual void OnWatch(IncomingPtr<v1::WatchRequest, v1::WatchResponse> call) = 0;
  virtual void OnRendezvous(IncomingPtr<v1::RendezvousRequest, v1::RendezvousResponse> call) = 0;
  virtual void OnWithdraw(IncomingPtr<v1::WithdrawRequest, v1::WithdrawResponse> call) = 0;
  virtual void OnCallStatus(IncomingPtr<v1::CallStatusRequest, v1::CallStatusResponse> call) = 0;
  virtual void OnOpenSpan(IncomingPtr<v1::OpenSpanRequest, v1::OpenSpanResponse> call) = 0;
  virtual void OnFetchSection(
      IncomingPtr<v1::FetchPeerSectionRequest, v1::FetchPeerSectionResponse> call) = 0;
  virtual void OnNotifyAgent(IncomingPtr<v1::NotifyAgentRequest, v1::NotifyAgentResponse> call) = 0;
  virtual void OnRecords(IncomingPtr<v1::PeerRecordsRequest, v1::PeerRecordsResponse> call) = 0;
};

class PeerServer {
 public:
  // Listens. UNAVAILABLE if the address is taken or not this machine's. `handler` outlives it.
  // Any thread. `more`: another service on the same port, or null; it outlives the server.
  static absl::StatusOr<std::unique_ptr<PeerServer>> Start(const std::string& listen,
                                                           const Credentials& credentials,
                                                           daemon::EventLoop* loop,
                                                           PeerHandler* handler,
                                                           grpc::Service* more = nullptr);
  // Ends what waits. Not on the loop's thread, which must be running.
  virtual ~PeerServer() = default;
  virtual uint16_t port() const = 0;
};

}  // namespace shunt::cluster
