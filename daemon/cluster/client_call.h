// Calls to other daemons and to etcd, as reactors of gRPC.
//
// gRPC's threads borrow a call and never own it. A call's ClientContext holds the channel, and
// whoever lets go of the process's last channel stops gRPC's callback threads and joins them (gRPC
// 1.51, CallbackAlternativeCQ in completion_queue_cc.cc). One of these threads would join itself,
// which fails at once, and go on polling a queue that has been freed. So no callback may own what
// leads to a ClientContext, not even as the captures of a closure: those die after it has run.
//
//   loop:   Start ──────────► StartCall                        Ended, delete
//   gRPC:                         └─► reactions ─► OnDone ──post──┘
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <type_traits>
#include <utility>

#include "daemon/cluster/call_tracker.h"
#include "daemon/cluster/grpc_util.h"
#include "daemon/cluster/peer_rpc.h"

namespace shunt::cluster {

// The calls of one owner. Destroyed with the owner: calls in flight are cancelled, and are not
// heard of again. On the loop's thread.
class ClientCalls {
 public:
  explicit ClientCalls(CallTracker* tracker) : tracker_(tracker) {}
  ClientCalls(const ClientCalls&) = delete;
  ~ClientCalls() {
    state_->open = false;
    for (grpc::ClientContext* const context : state_->contexts) context->TryCancel();
  }

  // `method` is one of the interface of `async`, a stub's async(), which is used here only.
  template <typename Response, typename Request, typename Async>
  void Unary(std::type_identity_t<Async>* async,
             void (Async::*method)(grpc::ClientContext*, const Request*, Response*,
                                   grpc::ClientUnaryReactor*),
             const Request& request, std::chrono::nanoseconds timeout, RpcDone<Response> done);

 private:
  template <typename Reactor>
  friend class ClientCall;
  struct State {
    bool open = true;
    std::set<grpc::ClientContext*> contexts;
  };
  CallTracker* const tracker_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A call that owns itself: made with new on the loop, started at once, destroyed on the loop when
// gRPC has done with it. Reactions run on gRPC's threads, all else on the loop.
template <typename Reactor>
class ClientCall : public Reactor {
 public:
  ClientCall(const ClientCall&) = delete;

  void OnDone(const grpc::Status& status) final {
    // The last that a thread of gRPC does here: from now on the loop may destroy it.
    tracker_->End([this, result = FromGrpc(status)] {
      const std::unique_ptr<ClientCall> self(this);
      state_->contexts.erase(&context_);
      if (state_->open) Ended(result);
    });
  }

 protected:
  explicit ClientCall(ClientCalls* owner) : tracker_(owner->tracker_), state_(owner->state_) {
    state_->contexts.insert(&context_);
    tracker_->Begin();
  }

  // On the loop, last of all, if the owner is still there. It may destroy the owner.
  virtual void Ended(const absl::Status& status) = 0;

  // For reactions: runs `f` on the loop, before Ended, if the owner is still there.
  void OnLoop(std::function<void()> f) {
    tracker_->loop()->Post([this, f = std::move(f)] {
      if (state_->open) f();
    });
  }

  grpc::ClientContext context_;

 private:
  CallTracker* const tracker_;
  const std::shared_ptr<ClientCalls::State> state_;
};

template <typename Request, typename Response>
class UnaryCall : public ClientCall<grpc::ClientUnaryReactor> {
 public:
  template <typename Async>
  static void Start(ClientCalls* owner, std::type_identity_t<Async>* async,
                    void (Async::*method)(grpc::ClientContext*, const Request*, Response*,
                                          grpc::ClientUnaryReactor*),
                    const Request& request, std::chrono::nanoseconds timeout,
                    RpcDone<Response> done) {
    auto* const call = new UnaryCall(owner, request, std::move(done));
    call->context_.set_deadline(After(timeout));
    (async->*method)(&call->context_, &call->request_, &call->response_, call);
    call->StartCall();
  }

 private:
  UnaryCall(ClientCalls* owner, const Request& request, RpcDone<Response> done)
      : ClientCall(owner), request_(request), done_(std::move(done)) {}

  void Ended(const absl::Status& status) override {
    if (!status.ok()) return done_(status);
    done_(std::move(response_));
  }

  const Request request_;
  Response response_;
  const RpcDone<Response> done_;
};

template <typename Response, typename Request, typename Async>
void ClientCalls::Unary(std::type_identity_t<Async>* async,
                        void (Async::*method)(grpc::ClientContext*, const Request*, Response*,
                                              grpc::ClientUnaryReactor*),
                        const Request& request, std::chrono::nanoseconds timeout,
                        RpcDone<Response> done) {
  UnaryCall<Request, Response>::Start(this, async, method, request, timeout, std::move(done));
}

}  // namespace shunt::cluster
