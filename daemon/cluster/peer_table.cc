#include "daemon/cluster/peer_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/random.h"
#include "daemon/log.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::cluster {
namespace {

using daemon::LogInfo;
using daemon::LogWarn;

constexpr auto kHelloTimeout = std::chrono::seconds(3);
constexpr auto kPingTimeout = std::chrono::milliseconds(1500);
constexpr auto kWatchTimeout = std::chrono::minutes(10);
constexpr int64_t kRetryMinNs = 100'000'000;
constexpr int64_t kRetryMaxNs = 5'000'000'000;
constexpr int64_t kStableNs = 10'000'000'000;
// Who refused us, or was refused, has a configuration to be mended first.
constexpr int64_t kRefusedRetryNs = 5'000'000'000;
constexpr size_t kTokenBytes = 32;
constexpr size_t kTextBytesMax = 256;

absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

std::string Who(const MemberInfo& member) {
  return member.name.empty() ? absl::StrCat("the node at ", member.address)
                             : absl::StrCat("node '", member.name, "' (", member.address, ")");
}

absl::Status Prefixed(const absl::Status& status, const std::string& prefix) {
  return {status.code(), absl::StrCat(prefix, ": ", status.message())};
}

}  // namespace

v1::PeerIdentity Identity(const SelfInfo& self) {
  v1::PeerIdentity identity;
  identity.set_cluster(self.cluster);
  identity.set_node(self.name);
  identity.set_incarnation(self.incarnation);
  identity.set_data_transport(self.data_transport);
  identity.set_version(self.version);
  identity.set_protocol_min(self.protocol_min);
  identity.set_protocol_max(self.protocol_max);
  identity.set_control_address(self.address);
  if (self.role != Role::kNode) identity.set_role(std::string(cluster::Name(self.role)));
  return identity;
}

std::string_view PeerTable::Name(State state) {
  switch (state) {
    case State::kNew:
      return "new";
    case State::kCalling:
      return "calling";
    case State::kUp:
      return "up";
    case State::kDown:
      return "down";
    case State::kRefused:
      return "refused";
    case State::kSelf:
      return "self";
  }
  return "unknown";
}

PeerTable::PeerTable(CallTracker* tracker, const SelfInfo* self, Credentials credentials,
                     std::string tls_name, Events events)
    : tracker_(tracker),
      loop_(tracker->loop()),
      self_(self),
      credentials_(std::move(credentials)),
      tls_name_(std::move(tls_name)),
      events_(std::move(events)) {}

PeerTable::~PeerTable() {
  for (auto& [id, peer] : peers_) loop_->Cancel(peer->retry);
}

PeerTable::Peer* PeerTable::Find(const std::string& id) {
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : it->second.get();
}

std::string PeerTable::TlsName(const MemberInfo& member) const {
  if (!credentials_.tls()) return "";
  return tls_name_.empty() ? member.name : tls_name_;
}

void PeerTable::SetView(const View& view) {
  view_ = view;
  for (auto& [id, peer] : peers_) peer->in_view = false;
  for (const MemberInfo& member : view_.members) {
    std::unique_ptr<Peer>& peer = peers_[member.id()];
    if (peer == nullptr) peer = std::make_unique<Peer>();
    const bool moved = peer->client == nullptr || peer->member.address != member.address;
    const bool renewed = peer->member.incarnation != member.incarnation && member.incarnation != 0;
    if (peer->state == State::kUp &&
        (moved || (renewed && peer->info.incarnation != member.incarnation))) {
      peer->in_view = true;  // so that Lose keeps it
      Lose(*peer, moved ? "it has another address" : "it is another incarnation");
    }
    peer->in_view = true;
    peer->member = member;
    if (moved) {
      // Ends what was in flight to the old address.
      Connect(*peer);
      if (peer->state == State::kCalling) peer->state = State::kNew;
    }
    if (member.name == self_->name || member.address == self_->address) {
      peer->state = State::kSelf;
    } else if ((view_.members.size() <= kEagerMax || self_->role == Role::kAggregator) &&
               (peer->state == State::kNew || moved || renewed)) {
      Call(*peer);
    }
  }
  std::vector<std::string> gone;
  for (auto& [id, peer] : peers_) {
    if (!peer->in_view && (peer->state != State::kUp || view_.knows_incarnations))
      gone.push_back(id);
  }
  for (const std::string& id : gone) {
    Peer& peer = *peers_.at(id);
    if (peer.state == State::kUp) {
      Lose(peer, "it has left the cluster");  // and forgets it
    } else {
      Tell(peer, absl::UnavailableError(absl::StrCat(Who(peer.member), " has left the cluster")));
      loop_->Cancel(peer.retry);
      peers_.erase(id);
    }
  }
}

void PeerTable::Contact(const std::string& id, Done done) {
  Peer* const peer = Find(id);
  if (peer == nullptr) {
    done(absl::NotFoundError(absl::StrCat("node '", id, "' is not among the members as node '",
                                          self_->name, "' sees them: ", MemberList(view_))));
    return;
  }
  if (peer->state == State::kUp || peer->state == State::kSelf) {
    done(absl::OkStatus());
    return;
  }
  peer->waiters.push_back(std::move(done));
  if (peer->state != State::kCalling) Call(*peer);
}

void PeerTable::Recontact(const std::string& id, std::string_view why) {
  Peer* const peer = Find(id);
  if (peer != nullptr && peer->state == State::kUp) Lose(*peer, why);
}

// A new channel. What was in flight on the old one ends unheard.
void PeerTable::Connect(Peer& peer) {
  peer.client = PeerClient::Make(tracker_, peer.member.address, credentials_, TlsName(peer.member));
  peer.generation = ++generations_;
}

void PeerTable::Call(Peer& peer) {
  loop_->Cancel(std::exchange(peer.retry, 0));
  // An old channel may wait before it tries again.
  if (peer.state == State::kDown) Connect(peer);
  peer.state = State::kCalling;
  v1::HelloRequest request;
  *request.mutable_caller() = Identity(*self_);
  peer.client->Hello(
      request, kHelloTimeout,
      [this, &peer](const absl::StatusOr<v1::HelloResponse>& answer) { OnHello(peer, answer); });
}

absl::Status PeerTable::CheckProtocol(const v1::PeerIdentity& identity,
                                      const std::string& who) const {
  if (identity.cluster() != self_->cluster) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, " belongs to cluster '", identity.cluster().substr(0, kTextBytesMax),
                     "', node '", self_->name, "' to cluster '", self_->cluster, "'"));
  }
  if (std::max(identity.protocol_min(), self_->protocol_min) >
      std::min(identity.protocol_max(), self_->protocol_max)) {
    return absl::FailedPreconditionError(absl::StrCat(
        who, " is shuntd ", identity.version().substr(0, kTextBytesMax), " and speaks versions ",
        identity.protocol_min(), " to ", identity.protocol_max(),
        " of the protocol between daemons; node '", self_->name, "' is shuntd ", self_->version,
        " and speaks ", self_->protocol_min, " to ", self_->protocol_max));
  }
  if (identity.data_transport() != self_->data_transport) {
    return absl::FailedPreconditionError(absl::StrCat(
        who, " moves payload over \"", identity.data_transport().substr(0, kTextBytesMax),
        "\", node '", self_->name, "' over \"", self_->data_transport,
        "\"; expected one cluster.transport on all nodes"));
  }
  if (!identity.role().empty() && identity.role() != cluster::Name(Role::kNode) &&
      identity.role() != cluster::Name(Role::kAggregator)) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, " has the role \"", identity.role().substr(0, kTextBytesMax),
                     "\"; expected \"", AbslView(cluster::Name(Role::kNode)), "\" or \"",
                     AbslView(cluster::Name(Role::kAggregator)), "\""));
  }
  return absl::OkStatus();
}

absl::Status PeerTable::CheckAnswer(const Peer& peer, const v1::PeerIdentity& identity) const {
  const std::string who = Who(peer.member);
  SHUNT_RETURN_IF_ERROR(CheckProtocol(identity, who));
  if (!peer.member.name.empty() && identity.node() != peer.member.name) {
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon at ", peer.member.address, " is node '",
                     identity.node().substr(0, kTextBytesMax), "'; expected node '",
                     peer.member.name, "', as the member list says"));
  }
  if (identity.node().empty() || identity.incarnation() == 0) {
    return absl::FailedPreconditionError(absl::StrCat(who, " says no name or no incarnation"));
  }
  if (identity.node() == self_->name) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the daemon at ", peer.member.address, " has the name of this node, '", self_->name, "'"));
  }
  const auto other = up_by_name_.find(identity.node());
  if (other != up_by_name_.end() && other->second != peer.member.id()) {
    return absl::FailedPreconditionError(absl::StrCat("the daemon at ", peer.member.address,
                                                      " has the name '", identity.node(),
                                                      "', as the one at ", other->second, " has"));
  }
  return absl::OkStatus();
}

void PeerTable::OnHello(Peer& peer, const absl::StatusOr<v1::HelloResponse>& answer) {
  peer.name_taken = false;
  if (!answer.ok()) {
    const absl::StatusCode code = answer.status().code();
    const bool absent = code == absl::StatusCode::kUnavailable ||
                        code == absl::StatusCode::kDeadlineExceeded ||
                        code == absl::StatusCode::kCancelled;
    peer.name_taken = code == absl::StatusCode::kAlreadyExists;
    Fail(peer, absent ? State::kDown : State::kRefused,
         Prefixed(answer.status(),
                  absl::StrCat(Who(peer.member), absent ? " cannot be reached" : " refuses")));
    return;
  }
  const v1::PeerIdentity& identity = answer->identity();
  if (identity.node() == self_->name && identity.incarnation() == self_->incarnation &&
      peer.member.name.empty()) {
    peer.state = State::kSelf;
    Tell(peer, absl::OkStatus());
    events_.reach_changed();
    return;
  }
  absl::Status status = CheckAnswer(peer, identity);
  if (status.ok() && answer->data_token().size() != kTokenBytes) {
    status = absl::FailedPreconditionError(absl::StrCat(Who(peer.member), " gave a token of ",
                                                        answer->data_token().size(),
                                                        " bytes; expected ", kTokenBytes));
  }
  if (!status.ok()) {
    Fail(peer, State::kRefused, status);
    return;
  }
  peer.state = State::kUp;
  peer.why = absl::OkStatus();
  peer.up_since_ns = NowNs();
  peer.info.name = identity.node();
  peer.info.incarnation = identity.incarnation();
  peer.info.control_address = peer.member.address;
  peer.info.data_addresses.assign(answer->data_addresses().begin(), answer->data_addresses().end());
  peer.info.token_out = answer->data_token();
  peer.role = identity.role() == cluster::Name(Role::kAggregator) ? Role::kAggregator : Role::kNode;
  peer.info.token_in = Issue(peer.info.name, peer.info.incarnation);
  up_by_name_[peer.info.name] = peer.member.id();
  verified_[peer.info.name] = peer.info.incarnation;
  LogInfo("peer is up", {{"node", peer.info.name},
                         {"address", peer.member.address},
                         {"incarnation", Hex(peer.info.incarnation)},
                         {"role", cluster::Name(peer.role)},
                         {"version", identity.version().substr(0, kTextBytesMax)}});
  Watch(peer);
  events_.up(peer.info);
  Tell(peer, absl::OkStatus());
  events_.reach_changed();
}

void PeerTable::Watch(Peer& peer) {
  v1::WatchRequest request;
  *request.mutable_caller() = Identity(*self_);
  request.set_incarnation(peer.info.incarnation);
  peer.client->Watch(
      request, kWatchTimeout,
      [this, &peer, watch = ++peer.watch](const absl::StatusOr<v1::WatchResponse>& end) {
        // Not an earlier call of a peer that was lost since.
        if (peer.state != State::kUp || peer.watch != watch) return;
        if (end.status().code() == absl::StatusCode::kDeadlineExceeded) return Watch(peer);
        Lose(peer, end.ok() ? end->reason().substr(0, kTextBytesMax)
                            : absl::StrCat("its control connection: ", end.status().message()));
      });
}

// It may be gone from the table afterwards.
void PeerTable::Lose(Peer& peer, std::string_view why) {
  const PeerInfo info = std::move(peer.info);
  peer.info = {};
  up_by_name_.erase(info.name);
  verified_.erase(info.name);
  LogWarn("peer is lost", {{"node", info.name},
                           {"address", peer.member.address},
                           {"incarnation", Hex(info.incarnation)},
                           {"why", why}});
  const std::string words = absl::StrCat(Who(peer.member), " was lost: ", AbslView(why));
  peer.state = State::kDown;
  peer.why = absl::UnavailableError(words);
  if (peer.in_view) {
    // One that comes and goes is greeted less and less often.
    const bool stable = NowNs() - peer.up_since_ns >= kStableNs;
    peer.delay_ns = stable ? kRetryMinNs : std::clamp(2 * peer.delay_ns, kRetryMinNs, kRetryMaxNs);
    RetryAfter(peer, peer.delay_ns);
  } else {
    Tell(peer, peer.why);
    loop_->Cancel(peer.retry);
    peers_.erase(peer.member.id());
  }
  events_.lost(info, why);
  events_.reach_changed();
}

void PeerTable::Fail(Peer& peer, State state, const absl::Status& why) {
  if (peer.state != state && peer.why.code() != why.code())
    LogWarn("peer is not usable", {{"why", std::string(why.message())}});
  peer.state = state;
  peer.why = why;
  Tell(peer, why);
  peer.delay_ns = std::clamp(2 * peer.delay_ns, kRetryMinNs, kRetryMaxNs);
  RetryAfter(peer, state == State::kRefused ? kRefusedRetryNs : peer.delay_ns);
  events_.reach_changed();
}

void PeerTable::RetryAfter(Peer& peer, int64_t delay_ns) {
  loop_->Cancel(peer.retry);
  peer.retry = loop_->At(NowNs() + delay_ns, [this, &peer] {
    peer.retry = 0;
    if (peer.state == State::kDown || peer.state == State::kRefused) Call(peer);
  });
}

void PeerTable::Tell(Peer& peer, const absl::Status& status) {
  // Later: what they do may change this table.
  for (Done& done : std::exchange(peer.waiters, {})) {
    loop_->Post([done = std::move(done), status, alive = std::weak_ptr<char>(alive_)] {
      if (alive.lock() != nullptr) done(status);
    });
  }
}

bool PeerTable::Down(const MemberInfo& member) const {
  const auto it = peers_.find(member.id());
  if (it == peers_.end()) return false;
  const Peer& peer = *it->second;
  // While it is called again it is what it was.
  return peer.state == State::kDown || peer.state == State::kRefused ||
         (peer.state == State::kCalling && !peer.why.ok());
}

bool PeerTable::IsSelf(const MemberInfo& member) const {
  const auto it = peers_.find(member.id());
  return it != peers_.end() && it->second->state == State::kSelf;
}

bool PeerTable::Aggregates(const MemberInfo& member) const {
  const auto it = peers_.find(member.id());
  if (it == peers_.end()) return false;
  if (it->second->state == State::kSelf) return self_->role == Role::kAggregator;
  return it->second->role == Role::kAggregator;
}

std::vector<const PeerInfo*> PeerTable::Aggregators() const {
  std::vector<const PeerInfo*> found;
  for (const auto& [name, id] : up_by_name_) {
    const Peer& peer = *peers_.at(id);
    if (peer.role == Role::kAggregator) found.push_back(&peer.info);
  }
  return found;
}

bool PeerTable::Greeting() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    return entry.second->state == State::kCalling && entry.second->why.ok();
  });
}

const PeerInfo* PeerTable::FindUp(std::string_view name) const {
  const auto id = up_by_name_.find(name);
  return id == up_by_name_.end() ? nullptr : &peers_.at(id->second)->info;
}

PeerClient* PeerTable::ClientOf(const std::string& id) {
  Peer* const peer = Find(id);
  return peer == nullptr ? nullptr : peer->client.get();
}

uint64_t PeerTable::GenerationOf(const std::string& id) const {
  const auto it = peers_.find(id);
  return it == peers_.end() ? 0 : it->second->generation;
}

std::string PeerTable::IdOf(std::string_view name, std::string_view address) const {
  if (const auto up = up_by_name_.find(name); up != up_by_name_.end()) return up->second;
  if (FindMember(view_, name) != nullptr) return std::string(name);
  const MemberInfo* const member = FindAddress(view_, address);
  return member != nullptr ? member->id() : std::string(name);
}

std::vector<PeerTable::Row> PeerTable::Rows() const {
  std::vector<Row> rows;
  for (const auto& [id, peer] : peers_) {
    Row row{peer->member, peer->state, std::string(peer->why.message()), peer->role};
    if (peer->state == State::kUp) {
      row.member.name = peer->info.name;
      row.member.incarnation = peer->info.incarnation;
    } else if (peer->state == State::kSelf) {
      row.member.name = self_->name;
      row.role = self_->role;
      row.member.incarnation = self_->incarnation;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

absl::Status PeerTable::own_name() const {
  for (const auto& [id, peer] : peers_) {
    if (peer->name_taken && peer->state != State::kUp) return peer->why;
  }
  return absl::OkStatus();
}

std::string PeerTable::Issue(const std::string& name, uint64_t incarnation) {
  Issued& issued = issued_[name];
  if (issued.incarnation != incarnation) {
    issued = {incarnation, RandomBytes(kTokenBytes)};
    if (events_.expected) events_.expected(name, incarnation, issued.token);
  }
  return issued.token;
}

void PeerTable::AnswerHello(const v1::PeerIdentity& caller, v1::HelloResponse* response) {
  *response->mutable_identity() = Identity(*self_);
  for (const std::string& address : self_->data_addresses) response->add_data_addresses(address);
  if (caller.incarnation() == self_->incarnation) {
    response->set_data_token(
        RandomBytes(kTokenBytes));  // we greet ourselves: nobody will present it
    return;
  }
  response->set_data_token(Issue(caller.node(), caller.incarnation()));
}

void PeerTable::Ping(const MemberInfo& member, RpcDone<v1::PingResponse> done) {
  // A channel of its own: the member need not be in the view, and an old one may wait.
  auto client = std::shared_ptr<PeerClient>(
      PeerClient::Make(tracker_, member.address, credentials_, TlsName(member)));
  PeerClient* const raw = client.get();
  raw->Ping(v1::PingRequest(), kPingTimeout,
            [client, done = std::move(done),
             alive = std::weak_ptr<char>(alive_)](const absl::StatusOr<v1::PingResponse>& answer) {
              if (alive.lock() != nullptr) done(answer);
            });
}

void PeerTable::Probe(const MemberInfo& member, std::function<void(bool)> done) {
  Ping(member, [member, done = std::move(done)](const absl::StatusOr<v1::PingResponse>& answer) {
    done(answer.ok() && answer->identity().node() == member.name &&
         answer->identity().incarnation() == member.incarnation);
  });
}

void PeerTable::Reset(std::string_view why) {
  issued_.clear();
  for (auto& [id, peer] : peers_) {
    if (peer->state == State::kSelf) continue;
    loop_->Cancel(std::exchange(peer->retry, 0));
    Connect(*peer);
    if (peer->state == State::kUp) events_.lost(std::exchange(peer->info, {}), why);
    peer->state = State::kNew;
    peer->why = absl::OkStatus();
    peer->name_taken = false;
    if (!peer->waiters.empty()) Call(*peer);
  }
  up_by_name_.clear();
  verified_.clear();
  const View view = view_;
  SetView(view);
}

}  // namespace shunt::cluster
