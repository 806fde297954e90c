// A call that a peer has made, between its arrival and its reply.
//
// gRPC holds the reactor from its making to OnDone, which comes only after Reply; meanwhile the
// record keeps itself, and everybody else who wants it holds it too. It is let go on the loop, as
// are calls to others (client_call.h): what its closures hold is never destroyed by gRPC.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "daemon/cluster/grpc_util.h"
#include "daemon/cluster/peer_rpc.h"
#include "daemon/event_loop.h"

namespace shunt::cluster {

template <typename Request, typename Response>
class Incoming final : public IncomingCall<Request, Response>, public grpc::ServerUnaryReactor {
 public:
  // On a thread of gRPC, in the method's handler, which returns it: gRPC begins to use it only
  // then, and keeps a reply that is there before. `out` is gRPC's, until OnDone.
  static std::shared_ptr<Incoming> Make(daemon::EventLoop* loop, Response* out) {
    std::shared_ptr<Incoming> call(new Incoming(loop, out));
    call->self_ = call;
    return call;
  }

  void Reply(const absl::Status& status) override {
    if (std::exchange(replied_, true)) return;
    if (status.ok()) *out_ = std::move(this->response);
    this->on_cancel = nullptr;
    Finish(ToGrpc(status));
  }

  void OnCancel() override {
    loop_->Post([call = self_] { call->Cancelled(); });
  }
  void OnDone() override {
    loop_->Post([call = std::move(self_)] {});
  }

 private:
  Incoming(daemon::EventLoop* loop, Response* out) : loop_(loop), out_(out) {}

  void Cancelled() {
    if (replied_) return;
    if (const std::function<void()> handler = std::move(this->on_cancel)) handler();
    Reply(absl::CancelledError("the caller gave up"));
  }

  daemon::EventLoop* const loop_;
  Response* const out_;
  std::shared_ptr<Incoming> self_;  // gRPC's threads'
  bool replied_ = false;            // the loop's
};

}  // namespace shunt::cluster
