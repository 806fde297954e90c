// Who owns a call: the loop, whatever gRPC's threads do.
#include <catch2/catch.hpp>
#include <thread>

#include "daemon/cluster/client_call.h"
#include "daemon/cluster/incoming_call.h"
#include "tests/cluster/node.h"

namespace shunt::cluster::testing {
namespace {

using namespace std::chrono_literals;

// A loop's thread, and the calls that it owns.
struct LoopThread {
  LoopThread() : thread([this] { loop->Run(); }) {}
  ~LoopThread() {
    tracker.WaitIdle();
    loop->Stop();
    thread.join();
  }
  void Do(const std::function<void()>& f) {
    Outcome<bool> ran;
    loop->Post([&] {
      f();
      ran.Set(true);
    });
    REQUIRE(ran.Get().ok());
  }

  std::unique_ptr<daemon::EventLoop> loop = *daemon::EventLoop::Make();
  CallTracker tracker{loop.get()};
  std::thread thread;
};

// Notes on which thread it is destroyed.
struct Witness {
  ~Witness() {
    if (destroyed_on != nullptr) *destroyed_on = std::this_thread::get_id();
  }
  std::thread::id* destroyed_on = nullptr;
};

// Stands for gRPC: takes a call, and ends it when the test says so.
class FakeStub : public grpc::ClientCallbackUnary {
 public:
  void Method(grpc::ClientContext*, const Witness*, Witness* response,
              grpc::ClientUnaryReactor* reactor) {
    response->destroyed_on = &destroyed_on;
    BindReactor(reactor);
    reactor_ = reactor;
  }
  void StartCall() override {}
  void End(const grpc::Status& status) {
    std::thread([this, status] { reactor_->OnDone(status); }).join();
  }
  std::thread::id destroyed_on;

 private:
  grpc::ClientUnaryReactor* reactor_ = nullptr;
};

// An address where nobody listens.
std::unique_ptr<PeerClient> NobodysClient(CallTracker* tracker) {
  return PeerClient::Make(tracker, Loopback(FreePorts(1)[0]), Credentials(), "");
}

TEST_CASE("a call that gRPC ends is destroyed on the loop") {
  LoopThread on;
  FakeStub stub;
  std::unique_ptr<ClientCalls> calls;
  bool heard = false;
  on.Do([&] {
    calls = std::make_unique<ClientCalls>(&on.tracker);
    calls->Unary<Witness>(&stub, &FakeStub::Method, Witness(), 1s,
                          [&](const absl::StatusOr<Witness>& answer) {
                            heard = !answer.ok() && answer.status().message() == "why";
                            calls.reset();  // the owner may go
                          });
  });
  stub.End({grpc::StatusCode::UNAVAILABLE, "why"});
  on.Do([&] { CHECK(heard); });
  CHECK(stub.destroyed_on == on.thread.get_id());
}

TEST_CASE("a call whose owner is gone is unheard, and destroyed on the loop") {
  LoopThread on;
  FakeStub stub;
  bool heard = false;
  on.Do([&] {
    ClientCalls calls(&on.tracker);
    calls.Unary<Witness>(&stub, &FakeStub::Method, Witness(), 1s,
                         [&](const absl::StatusOr<Witness>&) { heard = true; });
  });
  CHECK(stub.destroyed_on == std::thread::id());  // gRPC has it still
  stub.End(grpc::Status::OK);
  on.Do([&] { CHECK_FALSE(heard); });
  CHECK(stub.destroyed_on == on.thread.get_id());
}

// The process's last channel stops gRPC's callback threads: see client_call.h.
TEST_CASE("the last channel may go with its call, at its end or before") {
  LoopThread on;
  for (int i = 0; i < 300; ++i) {
    std::unique_ptr<PeerClient> client;
    Outcome<bool> ended;
    on.Do([&] {
      client = NobodysClient(&on.tracker);
      client->Ping({}, 5s, [&](const absl::StatusOr<v1::PingResponse>& answer) {
        client.reset();
        ended.Set(answer.status().code() == absl::StatusCode::kUnavailable);
      });
      if (i % 3 == 2) client.reset();
    });
    if (i % 3 != 2) CHECK(*ended.Get());
    on.tracker.WaitIdle();
  }
}

// Half of the calls wait until they are given up or the server goes.
struct Holder : PeerHandler {
  void OnPing(IncomingPtr<v1::PingRequest, v1::PingResponse> call) override {
    if (++count % 2 == 0) return call->Reply(absl::OkStatus());
    held.push_back(std::move(call));
  }
  void OnHello(IncomingPtr<v1::HelloRequest, v1::HelloResponse>) override {}
  void OnWatch(IncomingPtr<v1::WatchRequest, v1::WatchResponse>) override {}
  void OnRendezvous(IncomingPtr<v1::RendezvousRequest, v1::RendezvousResponse>) override {}
  void OnWithdraw(IncomingPtr<v1::WithdrawRequest, v1::WithdrawResponse>) override {}
  void OnCallStatus(IncomingPtr<v1::CallStatusRequest, v1::CallStatusResponse>) override {}
  void OnOpenSpan(IncomingPtr<v1::OpenSpanRequest, v1::OpenSpanResponse>) override {}
  void OnFetchSection(
      IncomingPtr<v1::FetchPeerSectionRequest, v1::FetchPeerSectionResponse>) override {}
  void OnNotifyAgent(IncomingPtr<v1::NotifyAgentRequest, v1::NotifyAgentResponse>) override {}
  void OnRecords(IncomingPtr<v1::PeerRecordsRequest, v1::PeerRecordsResponse>) override {}
  int count = 0;
  std::vector<IncomingPtr<v1::PingRequest, v1::PingResponse>> held;
};

TEST_CASE("servers and clients go while calls come, wait and are given up") {
  LoopThread serving;
  LoopThread calling;
  for (int i = 0; i < 30; ++i) {
    Holder holder;
    auto server = PeerServer::Start("127.0.0.1:0", Credentials(), serving.loop.get(), &holder);
    REQUIRE(server.status().ToString() == "OK");
    std::vector<std::unique_ptr<PeerClient>> clients(4);
    Outcome<bool> one;
    calling.Do([&] {
      for (auto& client : clients) {
        client = PeerClient::Make(&calling.tracker, Loopback((*server)->port()), Credentials(), "");
        for (int n = 0; n < 4; ++n) {
          client->Ping({}, 5s, [&](const absl::StatusOr<v1::PingResponse>&) { one.Set(true); });
        }
      }
    });
    REQUIRE(one.Get().ok());
    const auto leave = [&] { calling.Do([&] { clients.resize(i % 4); }); };
    if (i % 2 == 0) leave();
    server->reset();
    leave();
    calling.Do([&] { clients.clear(); });
    calling.tracker.WaitIdle();
    // Records outlive their calls; a reply that comes too late is none.
    serving.Do([&] {
      for (const auto& call : holder.held) call->Reply(absl::OkStatus());
      holder.held.clear();
    });
  }
}

}  // namespace
}  // namespace shunt::cluster::testing
