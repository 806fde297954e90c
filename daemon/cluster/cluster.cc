#include "daemon/cluster/cluster.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/address.h"
#include "daemon/cluster/agent_caller.h"
#include "daemon/cluster/agent_messages.h"
#include "daemon/cluster/call_tracker.h"
#include "daemon/cluster/joiner.h"
#include "daemon/cluster/make_membership.h"
#include "daemon/cluster/messages.h"
#include "daemon/cluster/peer_rpc.h"
#include "daemon/cluster/random.h"
#include "daemon/log.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::cluster {
namespace {

using daemon::LogInfo;
using daemon::LogWarn;

constexpr size_t kCallBytesMax = 512;
constexpr auto kAnswerGrace = std::chrono::milliseconds(100);

class ClusterImpl : public Cluster, private PeerHandler {
 public:
  ClusterImpl(Options options, ClusterEvents events, daemon::EventLoop* loop)
      : options_(std::move(options)), events_(std::move(events)), loop_(loop), tracker_(loop) {}

  ~ClusterImpl() override {
    if (peers_ != nullptr) Leave();
    server_.reset();
    OnLoop([this] {
      joiner_.reset();
      agents_.reset();
      peers_.reset();
      membership_.reset();
    });
    tracker_.WaitIdle();
    OnLoop([] {});  // what the last calls posted has run
  }

  absl::Status Init() {
    const ClusterConfig& config = options_.config;
    SHUNT_ASSIGN_OR_RETURN(credentials_, LoadCredentials(config));
    SHUNT_ASSIGN_OR_RETURN(server_, PeerServer::Start(config.listen, credentials_, loop_, this));
    self_.cluster = config.name;
    self_.name = NodeName(config);
    self_.address = AdvertisedAddress(config, server_->port());
    self_.data_transport = std::string(Name(options_.config.transport));
    self_.incarnation = options_.incarnation != 0 ? options_.incarnation : RandomId();
    self_.version = options_.version;
    self_.role = config.role;
    self_.protocol_min = options_.protocol_min;
    self_.protocol_max = options_.protocol_max;
    self_.data_addresses = options_.data_addresses;
    membership_ = options_.membership != nullptr
                      ? std::move(options_.membership)
                      : MakeMembership(config, self_, credentials_, &tracker_);
    const absl::StatusOr<Address> listen = ParseAddress(config.listen, /*port_zero=*/true);
    if (!credentials_.tls() && listen.ok() && !IsLoopback(*listen)) {
      LogWarn("the cluster has no TLS: whoever reaches this address can speak for a node",
              {{"address", self_.address}, {"expected", "cluster.tls_cert, tls_key and tls_ca"}});
    }
    LogInfo("listening for other nodes", {{"cluster", self_.cluster},
                                          {"node", self_.name},
                                          {"address", self_.address},
                                          {"incarnation", Hex(self_.incarnation)},
                                          {"role", Name(config.role)},
                                          {"membership", Name(config.membership)}});
    OnLoop([this] { Begin(); });
    return absl::OkStatus();
  }

  uint64_t JoinAcross(JoinAcrossRequest request, JoinAcrossDone done) override {
    const uint64_t id = next_id_++;
    loop_->Post([this, id, request = std::move(request), done = std::move(done)]() mutable {
      joiner_->Join(id, std::move(request), std::move(done));
    });
    return id;
  }

  void Withdraw(uint64_t join_id, std::string why) override {
    loop_->Post([this, join_id, why = std::move(why)] { joiner_->Withdraw(join_id, why); });
  }

  void CallStatus(const std::string& node, uint64_t wire_id, std::chrono::nanoseconds timeout,
                  CallStatusDone done) override {
    loop_->Post([this, node, wire_id, timeout, done = std::move(done)] {
      AskCallStatus(node, wire_id, timeout, done);
    });
  }

  void DataLost(const std::string& node, uint64_t incarnation, std::string why) override {
    loop_->Post([this, node, incarnation, why = std::move(why)] {
      const PeerInfo* const peer = peers_->FindUp(node);
      if (peer == nullptr || peer->incarnation != incarnation) return;
      peers_->Recontact(peers_->IdOf(peer->name, peer->control_address),
                        absl::StrCat("its data connection: ", why));
    });
  }

  std::vector<OtherNode> OtherNodes() override { return agents_->OtherNodes(); }

  uint64_t UpIncarnation(const std::string& node) override {
    const PeerInfo* const peer = peers_->FindUp(node);
    return peer == nullptr ? 0 : peer->incarnation;
  }

  void FetchSection(const std::string& node, const SectionQuery& query,
                    std::chrono::nanoseconds timeout, SectionDone done) override {
    loop_->Post([this, node, query, timeout, done = std::move(done)]() mutable {
      agents_->FetchSection(node, query, timeout, std::move(done));
    });
  }

  void NotifyAgent(const std::string& node, const AgentNotice& notice,
                   std::chrono::nanoseconds timeout,
                   std::function<void(const absl::Status&)> done) override {
    loop_->Post([this, node, notice, timeout, done = std::move(done)]() mutable {
      agents_->NotifyAgent(node, notice, timeout, std::move(done));
    });
  }

  ClusterView GetView() override {
    ClusterView view;
    OnLoop([this, &view] {
      view.self = self_;
      view.view = membership_->view();
      view.membership = membership_->status();
      view.peers = peers_->Rows();
      view.joins_waiting = joiner_->joins_waiting();
      view.registrations_waiting = joiner_->registrations_waiting();
    });
    return view;
  }

  std::vector<PeerTable::Row> PeersOnLoop() override { return peers_->Rows(); }

  uint16_t port() const override { return server_->port(); }

 private:
  void Begin() {
    PeerTable::Events events;
    events.expected = events_.peer_expected;
    events.up = [this](const PeerInfo& peer) {
      if (events_.peer_up) events_.peer_up(peer);
    };
    events.lost = [this](const PeerInfo& peer, std::string_view why) {
      joiner_->PeerLost(peer.name, peer.incarnation, why);
      agents_->PeerLost(peer.name, why);
      if (events_.peer_lost) events_.peer_lost(peer, why);
    };
    events.reach_changed = [this] { joiner_->Reevaluate(); };
    events.unknown_caller = [this] { membership_->Refresh(); };
    const std::string tls_name = options_.config.membership == MembershipKind::kDns
                                     ? options_.config.dns_name
                                     : std::string();
    peers_ =
        std::make_unique<PeerTable>(&tracker_, &self_, credentials_, tls_name, std::move(events));
    joiner_ =
        std::make_unique<Joiner>(loop_, &self_, peers_.get(), membership_.get(), events_.link);
    agents_ = std::make_unique<AgentCaller>(loop_, &self_, peers_.get());
    Membership::Events news;
    news.changed = [this] {
      if (leaving_) return;
      const absl::Status status = membership_->status();
      if (status != last_status_) {
        last_status_ = status;
        if (status.ok()) {
          LogInfo("the membership is known", {{"members", membership_->view().members.size()}});
        } else {
          LogWarn("the membership is not known", {{"why", std::string(status.message())}});
        }
      }
      peers_->SetView(membership_->view());
      joiner_->Reevaluate();
    };
    news.renew = [this](std::string_view why) { return Renew(why); };
    news.probe = [this](const MemberInfo& member, std::function<void(bool)> done) {
      peers_->Probe(member, std::move(done));
    };
    membership_->Start({self_.name, self_.address, self_.incarnation}, std::move(news));
  }

  uint64_t Renew(std::string_view why) {
    self_.incarnation = RandomId();
    LogWarn("this node is another incarnation",
            {{"incarnation", Hex(self_.incarnation)}, {"why", why}});
    peers_->Reset(why);
    joiner_->Renewed();
    if (events_.renewed) events_.renewed(self_.incarnation, why);
    return self_.incarnation;
  }

  // Everybody who waits hears of it, then the membership.
  void Leave() {
    std::mutex mutex;
    std::condition_variable cv;
    bool left = false;
    OnLoop([&] {
      leaving_ = true;
      events_ = {};
      joiner_->Stop();
      agents_->Stop();
      for (const auto& call : std::exchange(watchers_, {})) {
        call->response.set_reason("it stopped");
        call->Reply(absl::OkStatus());
      }
      membership_->Stop([&] {
        std::lock_guard lock(mutex);
        left = true;
        cv.notify_all();
      });
    });
    std::unique_lock lock(mutex);
    cv.wait(lock, [&] { return left; });
  }

  // Runs `f` on the loop's thread and waits for it.
  void OnLoop(const std::function<void()>& f) {
    std::mutex mutex;
    std::condition_variable cv;
    bool done = false;
    loop_->Post([&] {
      f();
      std::lock_guard lock(mutex);
      done = true;
      cv.notify_all();
    });
    std::unique_lock lock(mutex);
    cv.wait(lock, [&] { return done; });
  }

  // Calls `then` for a caller that is who it says, while this node takes calls.
  template <typename Call>
  void Admit(const Call& call, std::function<void()> then) {
    if (peers_ == nullptr || leaving_) {
      return call->Reply(absl::UnavailableError(absl::StrCat(
          "shuntd on node '", self_.name, "' is ", leaving_ ? "stopping" : "starting")));
    }
    peers_->Verify(call->request.caller(), call->tls_names, call->from,
                   [this, call, then = std::move(then)](const absl::Status& status) {
                     if (!status.ok()) return call->Reply(status);
                     if (!leaving_) return then();
                     call->Reply(absl::UnavailableError("shuntd is stopping"));
                   });
  }

  void OnPing(IncomingPtr<v1::PingRequest, v1::PingResponse> call) override {
    if (peers_ == nullptr) return call->Reply(absl::UnavailableError("shuntd is starting"));
    *call->response.mutable_identity() = Identity(self_);
    call->Reply(absl::OkStatus());
  }

  void OnHello(IncomingPtr<v1::HelloRequest, v1::HelloResponse> call) override {
    Admit(call, [this, call] {
      peers_->AnswerHello(call->request.caller(), &call->response);
      call->Reply(absl::OkStatus());
    });
  }

  void OnWatch(IncomingPtr<v1::WatchRequest, v1::WatchResponse> call) override {
    Admit(call, [this, call] {
      if (call->request.incarnation() != self_.incarnation) {
        return call->Reply(absl::FailedPreconditionError(
            absl::StrCat("node '", self_.name, "' is incarnation ", Hex(self_.incarnation),
                         "; expected ", Hex(call->request.incarnation()))));
      }
      watchers_.insert(call);
      call->on_cancel = [this, weak = std::weak_ptr(call)] { watchers_.erase(weak.lock()); };
    });
  }

  void OnRendezvous(Joiner::RendezvousCall call) override {
    Admit(call, [this, call] { joiner_->OnRendezvous(call); });
  }

  void OnWithdraw(Joiner::WithdrawCall call) override {
    Admit(call, [this, call] { joiner_->OnWithdraw(call); });
  }

  void OnCallStatus(IncomingPtr<v1::CallStatusRequest, v1::CallStatusResponse> call) override {
    Admit(call, [this, call] {
      if (!events_.call_status) return call->Reply(absl::UnimplementedError("no call status here"));
      const auto ranks = events_.call_status(call->request.wire_id());
      if (!ranks.ok()) return call->Reply(ranks.status());
      for (const RankCall& rank : *ranks) {
        v1::RankCall* const out = call->response.add_ranks();
        out->set_rank(rank.rank);
        out->set_pid(rank.pid);
        out->set_last_call(rank.last_call.substr(0, kCallBytesMax));
        out->set_collectives(rank.collectives);
      }
      call->Reply(absl::OkStatus());
    });
  }

  void OnFetchSection(
      IncomingPtr<v1::FetchPeerSectionRequest, v1::FetchPeerSectionResponse> call) override {
    AdmitAgentCall(call, events_.fetch_section != nullptr, [this, call] {
      const auto query = FromProto(call->request);
      if (!query.ok()) return call->Reply(query.status());
      auto answer = events_.fetch_section(*query);
      if (answer.ok()) ToProto(*std::move(answer), &call->response);
      call->Reply(answer.status());
    });
  }

  void OnNotifyAgent(IncomingPtr<v1::NotifyAgentRequest, v1::NotifyAgentResponse> call) override {
    AdmitAgentCall(call, events_.notify_agent != nullptr, [this, call] {
      const auto notice = FromProto(call->request, call->request.caller().node());
      call->Reply(notice.ok() ? events_.notify_agent(*notice) : notice.status());
    });
  }

  // As Admit, for who means this life of the node.
  template <typename Call>
  void AdmitAgentCall(const Call& call, bool served, std::function<void()> then) {
    Admit(call, [this, call, served, then = std::move(then)] {
      if (!served) return call->Reply(absl::UnimplementedError("there are no agents here"));
      if (call->request.incarnation() == self_.incarnation) return then();
      call->Reply(
          absl::UnavailableError(absl::StrCat("it is incarnation ", Hex(self_.incarnation),
                                              "; expected ", Hex(call->request.incarnation()))));
    });
  }

  void OnOpenSpan(IncomingPtr<v1::OpenSpanRequest, v1::OpenSpanResponse> call) override {
    Admit(call, [this, call] {
      if (self_.role != Role::kAggregator || !events_.open_span) {
        return call->Reply(absl::FailedPreconditionError(
            absl::StrCat("node '", self_.name, "' is no aggregator")));
      }
      auto map = FromProto(call->request);
      if (!map.ok()) return call->Reply(map.status());
      MeetAll(std::make_shared<const CommunicatorMap>(*std::move(map)),
              [call](const absl::Status& status) { call->Reply(status); });
    });
  }

  // Opens the communicator when all its nodes are up.
  void MeetAll(std::shared_ptr<const CommunicatorMap> map,
               std::function<void(const absl::Status&)> done) {
    const auto open = std::make_shared<size_t>(map->nodes.size());
    const auto said = std::make_shared<bool>(false);
    for (const MappedNode& node : map->nodes) {
      peers_->Contact(peers_->IdOf(node.name, node.address), [=, this](absl::Status status) {
        if (*said || leaving_) return;
        const PeerInfo* const peer = peers_->FindUp(node.name);
        if (status.ok() && (peer == nullptr || peer->incarnation != node.incarnation)) {
          status = absl::UnavailableError(absl::StrCat(
              "node '", node.name, "' is not there as incarnation ", Hex(node.incarnation)));
        }
        if (status.ok() && --*open != 0) return;
        *said = true;
        if (!status.ok()) return done(status);
        events_.open_span(*map, done);
      });
    }
  }

  void AskCallStatus(const std::string& node, uint64_t wire_id, std::chrono::nanoseconds timeout,
                     const CallStatusDone& done) {
    const std::string id = peers_->IdOf(node, "");
    PeerClient* const client = peers_->FindUp(node) != nullptr ? peers_->ClientOf(id) : nullptr;
    if (client == nullptr) {
      return done(absl::UnavailableError(absl::StrCat("node '", node, "' is not connected")));
    }
    v1::CallStatusRequest request;
    *request.mutable_caller() = Identity(self_);
    request.set_wire_id(wire_id);
    // The channel may be replaced, and the call end unheard: the timer is the last word.
    struct Asked {
      CallStatusDone done;
      daemon::EventLoop::TimerId timer = 0;
    };
    auto asked = std::make_shared<Asked>();
    asked->done = done;
    const auto finish = [loop = loop_, asked, node](absl::StatusOr<std::vector<RankCall>> ranks) {
      loop->Cancel(asked->timer);
      if (!ranks.ok()) {
        ranks = absl::Status(ranks.status().code(),
                             absl::StrCat("node '", node, "': ", ranks.status().message()));
      }
      if (const CallStatusDone then = std::exchange(asked->done, nullptr)) then(ranks);
    };
    asked->timer = loop_->At(DeadlineAfterNs(timeout + kAnswerGrace), [finish] {
      finish(absl::DeadlineExceededError("it did not answer in time"));
    });
    client->CallStatus(
        request, timeout, [finish](const absl::StatusOr<v1::CallStatusResponse>& answer) {
          if (!answer.ok()) return finish(answer.status());
          std::vector<RankCall> ranks;
          for (const v1::RankCall& rank : answer->ranks()) {
            ranks.push_back({rank.rank(), rank.pid(), rank.last_call().substr(0, kCallBytesMax),
                             rank.collectives()});
          }
          finish(std::move(ranks));
        });
  }

  Options options_;
  ClusterEvents events_;
  daemon::EventLoop* const loop_;
  CallTracker tracker_;
  Credentials credentials_;
  std::atomic<uint64_t> next_id_ = 1;
  std::unique_ptr<PeerServer> server_;

  // The loop's.
  SelfInfo self_;
  absl::Status last_status_ = absl::UnknownError("");
  bool leaving_ = false;
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<PeerTable> peers_;
  std::unique_ptr<Joiner> joiner_;
  std::unique_ptr<AgentCaller> agents_;
  std::set<IncomingPtr<v1::WatchRequest, v1::WatchResponse>> watchers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(Options options, ClusterEvents events,
                                                        daemon::EventLoop* loop) {
  SHUNT_RETURN_IF_ERROR(CheckClusterConfig(options.config));
  if (!options.config.enabled()) {
    return absl::FailedPreconditionError("cluster.listen is not set; expected HOST:PORT");
  }
  auto cluster = std::make_unique<ClusterImpl>(std::move(options), std::move(events), loop);
  SHUNT_RETURN_IF_ERROR(cluster->Init());
  return cluster;
}

}  // namespace shunt::cluster
