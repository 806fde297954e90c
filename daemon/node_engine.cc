#include "daemon/node_engine.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/exchange/policy_switch.h"

namespace shunt::daemon {
namespace {

constexpr size_t kPoolBytes = 256 << 20;
constexpr uint32_t kWindow = 4;  // slices at a time
constexpr transport::PeerId kSelf = ~0u;
// A communicator's numbers change that often at most.
constexpr int64_t kProposeNs = 1'000'000'000;
constexpr int64_t kWordsWaitNs = 500'000'000;
// Signatures of ended operations that are kept for messages that come late.
constexpr size_t kHistory = 64;

uint64_t Mix(uint64_t hash, uint64_t value) {
  for (int i = 0; i < 8; ++i) {
    hash = (hash ^ (value & 0xff)) * 0x100000001b3;
    value >>= 8;
  }
  return hash;
}

transport::Signature SignatureOf(const CollectiveSpec& spec) {
  uint64_t hash = 0xcbf29ce484222325;
  hash = Mix(hash, static_cast<uint64_t>(spec.kind));
  hash = Mix(hash, static_cast<uint64_t>(spec.dtype));
  hash = Mix(hash, static_cast<uint64_t>(spec.redop));
  hash = Mix(hash, static_cast<uint64_t>(static_cast<uint32_t>(spec.root)));
  return Mix(hash, spec.count);
}

transport::wire::Token TokenOf(const std::string& secret) {
  transport::wire::Token token{};
  std::memcpy(token.data(), secret.data(), std::min(secret.size(), token.size()));
  return token;
}

// Of channel numbers: what brings the nodes of an operation with a root together, whose data moves
// along edges that two wrong roots might not share.
constexpr uint32_t kAgreement = 1u << 31;

}  // namespace

struct NodeEngine::PeerState {
  NodeKey node;
  std::optional<transport::TcpPeer> info;  // none: spoken of, but not met yet
};

struct NodeEngine::SpanState {
  Span span;
  std::vector<transport::PeerId> peers;  // by node
  bool failed = false;
  struct Known {
    uint32_t channel;
    uint64_t sequence;
    transport::Signature signature;
    std::string words;
  };
  std::optional<exchange::PolicySwitch> policies;
  uint64_t begun = 0;        // the highest sequence of channel 0
  std::optional<Call> held;  // of channel 0: waits for a decision on the policy
  int64_t proposed_ns = 0;
  std::deque<Known> known;  // the last operations that were begun here
  struct Stray {
    transport::PeerId peer;
    uint32_t channel;
    uint64_t sequence;
    transport::Signature signature;
  };
  absl::flat_hash_map<int, exchange::LeftNote> left;  // by rank; of other nodes
  std::vector<Stray> strays;                          // of operations that this node has not begun

  const Known* Find(uint32_t channel, uint64_t sequence) const {
    for (const Known& k : known) {
      if (k.channel == channel && k.sequence == sequence) return &k;
    }
    return nullptr;
  }
};

struct NodeEngine::Running {
  Call call;
  SpanState* span = nullptr;
  exchange::NodeMap pair_map;
  std::vector<transport::PeerId> pair_peers;
  std::unique_ptr<exchange::PairTable> pairs;
  std::unique_ptr<exchange::Exchange> data, agreement;
  bool doomed = false;
  int64_t began_ns = 0;
  NetSpec net;
  LinkModel model;
};

namespace {

// An all_to_all_v's counts, from the rows of this node's ranks.
class LocalTable final : public exchange::PairTable {
 public:
  LocalTable(const exchange::NodeMap& map, int node, const std::vector<board::VRow>& rows)
      : map_(map), node_(node), rows_(rows) {}
  Entry At(int source, int destination) const override {
    Entry entry;
    if (map_.node_of[source] == node_) {
      const board::VRow& row = Row(source, destination);
      entry.count = row.send_count;
      entry.in_element = row.send_displ;
    }
    if (map_.node_of[destination] == node_) {
      const board::VRow& row = Row(destination, source);
      entry.count = row.recv_count;
      entry.out_element = row.recv_displ;
    }
    return entry;
  }

 private:
  const board::VRow& Row(int rank, int peer) const {
    return rows_[static_cast<size_t>(map_.index_on_node[rank]) * map_.world() + peer];
  }
  const exchange::NodeMap& map_;
  const int node_;
  const std::vector<board::VRow>& rows_;
};

}  // namespace

NodeEngine::NodeEngine(Options options)
    : node_(std::move(options.node)),
      spin_ns_(options.spin_ns),
      lost_(std::move(options.lost)),
      transport_(std::move(options.transport)),
      incarnation_(options.incarnation),
      pool_(kPoolBytes) {}

absl::StatusOr<std::unique_ptr<NodeEngine>> NodeEngine::Start(Options options) {
  std::unique_ptr<NodeEngine> engine(new NodeEngine(std::move(options)));
  engine->port_ = engine->transport_->port();
  engine->wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  engine->epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!engine->wake_.valid() || !engine->epoll_.valid()) {
    return ErrnoStatus(errno, "making the descriptors of the exchange thread");
  }
  for (const int fd : {engine->wake_.get(), engine->transport_->fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(engine->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return ErrnoStatus(errno, "watching the descriptors of the exchange thread");
    }
  }
  engine->thread_ = std::thread([e = engine.get()] {
    ::pthread_setname_np(::pthread_self(), "shunt-nodes");
    e->Run();
  });
  return engine;
}

NodeEngine::~NodeEngine() { Stop(); }

void NodeEngine::Stop() {
  if (!thread_.joinable()) return;
  Post([this] { stop_ = true; });
  thread_.join();
  std::vector<std::function<void()>> unread;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    unread.swap(mail_);
  }
  // They hold what calls Close.
  unread.clear();
  running_.clear();
  probes_.clear();
  spans_.clear();
}

void NodeEngine::Post(std::function<void()> f) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    mail_.push_back(std::move(f));
  }
  Wake();
}

void NodeEngine::Wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

void NodeEngine::RunMail() {
  std::vector<std::function<void()>> mail;
  {
    std::lock_guard lock(mutex_);
    mail.swap(mail_);
  }
  for (const std::function<void()>& f : mail) f();
}

void NodeEngine::Drive() {
  const std::unique_lock driving(driving_, std::try_to_lock);
  if (driving.owns_lock()) {
    Advance();
  } else {
    Wake();  // whoever drives may have looked at the mail already
  }
}

bool NodeEngine::Advance() {
  bool any = false;
  while (true) {
    RunMail();
    if (stop_) return true;
    RunOverdue();
    const size_t count = transport_->Poll(absl::MakeSpan(completions_));
    if (count == 0) return any;
    any = true;
    for (size_t i = 0; i < count; ++i) OnCompletion(completions_[i]);
  }
}

void NodeEngine::Run() {
  int64_t idle_since = 0;
  while (true) {
    int timeout_ms = -1;
    {
      const std::lock_guard driving(driving_);
      if (Advance()) idle_since = 0;
      if (stop_) {
        transport_->Poll(absl::MakeSpan(completions_));  // the last words
        return;
      }
      const int64_t now = NowNs();
      if (idle_since == 0) idle_since = now;
      if (!running_.empty() && now - idle_since < spin_ns_) {
        timeout_ms = 0;
      } else if (!overdue_.empty()) {
        timeout_ms =
            static_cast<int>(std::max<int64_t>(0, overdue_.front().due_ns - now) / 1'000'000 + 1);
      }
    }
    epoll_event events[2];
    const int ready = ::epoll_wait(epoll_.get(), events, 2, timeout_ms);
    for (int i = 0; i < ready; ++i) {
      if (events[i].data.fd != wake_.get()) continue;
      uint64_t drained;
      (void)!::read(wake_.get(), &drained, sizeof(drained));
    }
    if (ready > 0) idle_since = 0;
  }
}

void NodeEngine::RunOverdue() {
  while (!overdue_.empty() && overdue_.front().due_ns <= NowNs()) {
    const Overdue overdue = std::move(overdue_.front());
    overdue_.pop_front();
    const auto it = running_.find(overdue.number);
    if (it != running_.end()) FailSpan(*it->second->span, overdue.failure, true);
  }
}

// ---- Peers

transport::PeerId NodeEngine::PeerIdOf(const NodeKey& node) {
  const auto [it, fresh] = ids_.emplace(node, static_cast<transport::PeerId>(peers_.size()));
  if (fresh) {
    peers_.push_back(std::make_unique<PeerState>());
    peers_.back()->node = node;
  }
  return it->second;
}

void NodeEngine::Renew(uint64_t incarnation) {
  Post([this, incarnation] {
    incarnation_ = incarnation;
    transport_->Renew(incarnation);
  });
}

void NodeEngine::Meet(NodeKey node, std::string address, uint16_t port, std::string token_to_show,
                      std::string token_to_expect) {
  Post([this, node = std::move(node), address = std::move(address), port,
        show = std::move(token_to_show), expect = std::move(token_to_expect)] {
    const transport::PeerId id = PeerIdOf(node);
    PeerState& peer = *peers_[id];
    if (peer.info.has_value()) return;
    peer.info = transport::TcpPeer{
        id, node.name, address, port, node.incarnation, TokenOf(show), TokenOf(expect)};
    if (const absl::Status s = transport_->AddPeer(*peer.info); !s.ok()) {
      LogWarn("cannot reach a node's data address",
              {{"node", node.name}, {"address", address}, {"error", s.ToString()}});
      peer.info.reset();
    }
  });
}

void NodeEngine::Forget(NodeKey node) {
  Post([this, node = std::move(node)] {
    const auto it = ids_.find(node);
    if (it == ids_.end()) return;
    if (peers_[it->second]->info.has_value()) transport_->RemovePeer(it->second);
    ids_.erase(it);  // its number is never used again
  });
}

// ---- Communicators

void NodeEngine::Open(Span span) {
  Post([this, span = std::move(span)]() mutable {
    auto state = std::make_unique<SpanState>();
    std::vector<transport::PeerId> others;
    for (int node = 0; node < static_cast<int>(span.nodes.size()); ++node) {
      if (node == span.node) {
        state->peers.push_back(kSelf);
        continue;
      }
      state->peers.push_back(PeerIdOf(span.nodes[node]));
      others.push_back(state->peers.back());
    }
    const uint64_t wire_id = span.wire_id;
    state->policies.emplace(span.node, static_cast<int>(span.nodes.size()), span.policy);
    state->span = std::move(span);
    const absl::Status opened = transport_->Open(wire_id, others);
    SpanState& s = *(spans_[wire_id] = std::move(state));
    Publish(s);
    if (!opened.ok()) {
      FailSpan(s, {board::FailureReason::kStuck, std::string(opened.message())}, false);
    }
  });
}

void NodeEngine::Close(uint64_t wire_id) {
  Post([this, wire_id] {
    const auto it = spans_.find(wire_id);
    if (it == spans_.end()) return;
    transport_->Close(wire_id);
    for (auto r = running_.begin(); r != running_.end();) {
      if (r->second->span == it->second.get()) {
        running_.erase(r++);
      } else {
        ++r;
      }
    }
    spans_.erase(it);
    std::lock_guard lock(mutex_);
    views_.erase(wire_id);
  });
}

void NodeEngine::Tell(uint64_t wire_id, NodeFailure failure) {
  Post([this, wire_id, failure = std::move(failure)] {
    const auto it = spans_.find(wire_id);
    if (it != spans_.end()) FailSpan(*it->second, failure, true);
  });
}

void NodeEngine::FailSpan(SpanState& span, const NodeFailure& failure, bool tell) {
  if (span.failed) return;
  span.failed = true;
  if (tell)
    SendToAll(span, exchange::FailedNote{static_cast<uint8_t>(failure.reason), failure.text});
  span.span.failed(failure);
  // Nothing of it touches memory from here on.
  std::vector<std::unique_ptr<Running>> ended;
  for (auto r = running_.begin(); r != running_.end();) {
    if (r->second->span == &span) {
      ended.push_back(std::move(r->second));
      running_.erase(r++);
    } else {
      ++r;
    }
  }
  const std::optional<Call> held = std::exchange(span.held, std::nullopt);
  if (!ended.empty()) {
    transport_->Close(span.span.wire_id);
    std::vector<transport::PeerId> others;
    for (const transport::PeerId peer : span.peers) {
      if (peer != kSelf) others.push_back(peer);
    }
    // Notes of the others still come.
    (void)transport_->Open(span.span.wire_id, others);
  }
  for (const std::unique_ptr<Running>& running : ended) {
    running->call.done(absl::AbortedError(failure.text));
  }
  if (held.has_value()) held->done(absl::AbortedError(failure.text));
}

void NodeEngine::TellLeft(uint64_t wire_id, int rank, uint64_t collectives, std::string words) {
  Post([this, wire_id, note = exchange::LeftNote{rank, collectives, std::move(words)}] {
    const auto it = spans_.find(wire_id);
    if (it != spans_.end()) SendToAll(*it->second, note);
  });
}

void NodeEngine::Send(const SpanState& span, transport::PeerId peer, const exchange::Note& note) {
  const std::string bytes = exchange::Encode(note, transport_->limits().note_bytes_max);
  // A peer that cannot be told is lost, which tells it as much.
  (void)transport_->SendNote(
      peer, span.span.wire_id,
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

void NodeEngine::SendToAll(const SpanState& span, const exchange::Note& note) {
  for (const transport::PeerId peer : span.peers) {
    if (peer != kSelf) Send(span, peer, note);
  }
}

// ---- Operations

void NodeEngine::Begin(Call call) {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  mail_.push_back([this, call = std::move(call)]() mutable { StartCall(std::move(call)); });
}

void NodeEngine::StartCall(Call call) {
  const auto it = spans_.find(call.wire_id);
  if (it == spans_.end() || it->second->failed) {
    call.done(absl::AbortedError("the communicator has failed, or is closed"));
    return;
  }
  SpanState& span = *it->second;
  exchange::PolicySwitch& policies = *span.policies;
  if (call.channel == 0) {
    span.begun = call.sequence;
    std::optional<exchange::DecideNote> decided;
    const uint32_t version = policies.version();
    const bool may = policies.Advance(call.sequence, &decided);
    if (decided.has_value()) SendToAll(span, *decided);
    if (policies.version() != version) Publish(span);
    if (!may) {
      span.held = std::move(call);
      return;
    }
  }
  const transport::Signature signature = SignatureOf(call.spec);
  span.known.push_back({call.channel, call.sequence, signature, call.words});
  if (span.known.size() > kHistory) span.known.pop_front();

  auto running = std::make_unique<Running>();
  Running& r = *running;
  r.span = &span;
  r.call = std::move(call);
  const uint64_t number = next_number_;
  next_number_ += 2;

  exchange::Exchange::Setup setup;
  setup.header.tag.communicator = span.span.wire_id;
  setup.header.tag.channel = r.call.channel;
  setup.header.tag.sequence = r.call.sequence;
  setup.header.signature = signature;
  setup.window = kWindow;
  setup.local = r.call.local;
  CollectiveSpec spec = r.call.spec;
  const int world = span.span.map.world();
  if (r.call.channel == 0) {
    setup.node = span.span.node;
    setup.peers = span.peers;
    setup.shape = exchange::ChooseShape(spec, span.span.map, policies.policy());
    if (spec.kind == OpKind::kAllToAllV) {
      r.pairs = std::make_unique<LocalTable>(span.span.map, span.span.node, r.call.tables);
      setup.pairs = r.pairs.get();
    }
  } else {
    const int source = static_cast<int>((r.call.channel - 1) / world);
    const int destination = static_cast<int>((r.call.channel - 1) % world);
    r.pair_map = *exchange::NodeMap::Make({0, 1});
    r.pair_peers = {span.peers[span.span.map.node_of[source]],
                    span.peers[span.span.map.node_of[destination]]};
    spec.kind = OpKind::kBroadcast;
    spec.root = 0;
    setup.node = span.span.map.node_of[source] == span.span.node ? 0 : 1;
    setup.peers = r.pair_peers;
    setup.shape = exchange::ChooseShape(spec, r.pair_map, policies.policy());
  }
  if (setup.shape.net.kind == OpKind::kBroadcast || HasRoot(spec.kind)) {
    if (r.call.channel == 0) {
      exchange::Exchange::Setup agreement = setup;
      CollectiveSpec barrier{};
      barrier.kind = OpKind::kBarrier;
      agreement.shape = exchange::ChooseShape(barrier, span.span.map, policies.policy());
      agreement.header.tag.channel |= kAgreement;
      r.agreement = std::make_unique<exchange::Exchange>(std::move(agreement), transport_.get(),
                                                         &pool_, (number + 1) << 32);
    }
  }
  r.began_ns = NowNs();
  r.net = setup.shape.net;
  r.model = policies.policy().model;
  r.data = std::make_unique<exchange::Exchange>(std::move(setup), transport_.get(), &pool_,
                                                number << 32);
  running_.emplace(number, std::move(running));
  r.data->Start();
  if (r.agreement != nullptr) r.agreement->Start();

  for (size_t i = 0; i < span.strays.size();) {
    const SpanState::Stray stray = span.strays[i];
    if (stray.channel != r.call.channel || stray.sequence != r.call.sequence) {
      ++i;
      continue;
    }
    span.strays.erase(span.strays.begin() + static_cast<std::ptrdiff_t>(i));
    if (stray.signature == signature) continue;
    Send(span, stray.peer, exchange::CalledNote{r.call.channel, r.call.sequence, r.call.words});
  }
  Settle(number);
  DoomIfLeft(number);
}

void NodeEngine::Settle(uint64_t number) {
  const auto it = running_.find(number);
  if (it == running_.end()) return;
  Running& r = *it->second;
  for (const exchange::Exchange* e : {r.data.get(), r.agreement.get()}) {
    if (e == nullptr || e->status().ok()) continue;
    Doom(number, {board::FailureReason::kRankDied,
                  absl::StrCat(r.call.words, ", but ", e->status().message())});
    return;
  }
  if (!r.data->done() || (r.agreement != nullptr && !r.agreement->done())) return;
  const std::unique_ptr<Running> ended = std::move(it->second);
  running_.erase(it);
  if (ended->call.channel == 0) AddEstimate(*ended);
  ended->call.done(absl::OkStatus());
}

// ---- Measuring

void NodeEngine::BeginProbe(transport::PeerId peer) {
  const NodeKey& other = peers_[peer]->node;
  const std::string& self = node_;
  const bool asks = self < other.name;
  // The same on both sides, and of these two incarnations alone.
  const std::string& low = asks ? self : other.name;
  const std::string& high = asks ? other.name : self;
  uint64_t id = 0xcbf29ce484222325;
  for (const char c : absl::StrCat(low, "/", high)) id = Mix(id, static_cast<uint8_t>(c));
  id = Mix(id, incarnation_ + other.incarnation);
  if (!transport_->Open(id, {peer}).ok()) return;  // lost again
  const uint64_t number = next_number_;
  next_number_ += 2;
  Probing& probing = probes_[number];
  probing.communicator = id;
  probing.probe =
      std::make_unique<exchange::LinkProbe>(asks, peer, id, transport_.get(), number << 32);
  probing.probe->Start(NowNs());
}

void NodeEngine::OnProbe(uint64_t number, const transport::Completion& completion) {
  Probing& probing = probes_.at(number);
  probing.probe->OnCompletion(completion, NowNs());
  if (!probing.probe->done()) return;
  const exchange::LinkNumbers measured = probing.probe->numbers();
  transport_->Close(probing.communicator);
  probes_.erase(number);
  if (measured == exchange::LinkNumbers()) return;  // the connection broke
  LogInfo("link measured", {{"node", peers_[completion.peer]->node.name},
                            {"latency_ns", measured.latency_ns},
                            {"message_ns", measured.message_ns},
                            {"bytes_per_s", measured.bytes_per_s}});
  estimate_.AddProbe(measured);
  std::lock_guard lock(mutex_);
  numbers_ = estimate_.numbers();
}

exchange::LinkNumbers NodeEngine::numbers() const {
  std::lock_guard lock(mutex_);
  return numbers_;
}

// The leader of a communicator proposes numbers that have become others.
void NodeEngine::AddEstimate(const Running& running) {
  SpanState& span = *running.span;
  const uint64_t bytes = exchange::BytesOf(running.call.spec, span.span.map.world());
  const int64_t now = NowNs();
  estimate_.AddOperation(CostOf(running.net, bytes), running.model,
                         1e-9 * static_cast<double>(now - running.began_ns));
  const exchange::LinkNumbers numbers = estimate_.numbers();
  {
    std::lock_guard lock(mutex_);
    numbers_ = numbers;
  }
  if (span.span.pinned || !span.policies->MayPropose() || now - span.proposed_ns < kProposeNs)
    return;
  if (!exchange::Differ(exchange::ModelOf(numbers), span.policies->policy().model)) return;
  span.proposed_ns = now;
  SendToAll(span, span.policies->Propose(numbers, span.begun));
}

absl::StatusOr<NodeEngine::View> NodeEngine::Describe(uint64_t wire_id) const {
  std::lock_guard lock(mutex_);
  const auto it = views_.find(wire_id);
  if (it == views_.end()) return absl::NotFoundError("the communicator is closed");
  return it->second;
}

void NodeEngine::Publish(const SpanState& span) {
  std::lock_guard lock(mutex_);
  View& view = views_[span.span.wire_id];
  if (view.map.world() == 0) view.map = span.span.map;
  view.policy = span.policies->policy();
  view.pinned = span.span.pinned;
  view.version = span.policies->version();
}

// ---- What the transport says

void NodeEngine::OnCompletion(const transport::Completion& c) {
  switch (c.event) {
    case transport::Event::kSent:
    case transport::Event::kReceived: {
      const uint64_t number = c.token >> 32;
      if (probes_.contains(number)) return OnProbe(number, c);
      const uint64_t even = number - (number + 1) % 2;  // numbers of operations are odd
      const auto it = running_.find(even);
      if (it == running_.end()) return;
      (number == even ? it->second->data : it->second->agreement)->OnCompletion(c);
      Settle(even);
      return;
    }
    case transport::Event::kStray:
      OnStray(c);
      return;
    case transport::Event::kNote:
      OnNote(c);
      return;
    case transport::Event::kPeerUp:
      LogInfo("node connected", {{"node", peers_[c.peer]->node.name}});
      BeginProbe(c.peer);
      return;
    case transport::Event::kPeerLost: {
      const NodeKey node = peers_[c.peer]->node;
      // Not if it was forgotten, and may have been met again.
      const auto met = ids_.find(node);
      const bool unexpected = met != ids_.end() && met->second == c.peer;
      if (unexpected) LogWarn("data connection lost", {{"node", node.name}, {"why", c.text}});
      for (const auto& [wire_id, span] : spans_) {
        if (std::find(span->peers.begin(), span->peers.end(), c.peer) == span->peers.end())
          continue;
        FailSpan(*span,
                 {board::FailureReason::kRankDied,
                  absl::StrCat("node ", node.name, " is lost (", c.text, ")")},
                 true);
      }
      if (unexpected && lost_) lost_(node, c.text);
      return;
    }
  }
}

void NodeEngine::OnNote(const transport::Completion& c) {
  const auto it = spans_.find(c.tag.communicator);
  const std::optional<exchange::Note> note = exchange::Decode(c.text);
  if (it == spans_.end() || !note.has_value()) return;
  SpanState& span = *it->second;
  if (const auto* failed = std::get_if<exchange::FailedNote>(&*note)) {
    const bool known = failed->reason <= static_cast<uint8_t>(board::FailureReason::kDaemonGone);
    FailSpan(
        span,
        {known ? static_cast<board::FailureReason>(failed->reason) : board::FailureReason::kStuck,
         failed->words},
        false);
  } else if (const auto* called = std::get_if<exchange::CalledNote>(&*note)) {
    const SpanState::Known* mine = span.Find(called->channel, called->sequence);
    if (mine == nullptr) return;
    FailSpan(span,
             {board::FailureReason::kMismatch,
              absl::StrCat("the calls do not match: ", mine->words, "; on node ",
                           peers_[c.peer]->node.name, " ", called->words)},
             true);
  } else if (const auto* left = std::get_if<exchange::LeftNote>(&*note)) {
    // A node speaks of its own ranks.
    if (left->rank < 0 || left->rank >= span.span.map.world() ||
        span.peers[span.span.map.node_of[left->rank]] != c.peer) {
      return;
    }
    span.left[left->rank] = *left;
    std::vector<uint64_t> numbers;
    for (const auto& [number, running] : running_) {
      if (running->span == &span) numbers.push_back(number);
    }
    for (const uint64_t number : numbers) DoomIfLeft(number);
  } else if (const auto* propose = std::get_if<exchange::ProposeNote>(&*note)) {
    if (c.peer != span.peers[0] || span.span.pinned) return;
    const auto answer = span.policies->OnPropose(*propose, span.begun);
    if (answer.has_value()) Send(span, c.peer, *answer);
  } else if (const auto* agree = std::get_if<exchange::AgreeNote>(&*note)) {
    const auto from = std::find(span.peers.begin(), span.peers.end(), c.peer);
    const auto decided =
        span.policies->OnAgree(static_cast<int>(from - span.peers.begin()), *agree);
    if (decided.has_value()) SendToAll(span, *decided);
  } else if (const auto* decide = std::get_if<exchange::DecideNote>(&*note)) {
    if (c.peer != span.peers[0]) return;
    span.policies->OnDecide(*decide);
    if (!span.held.has_value()) return;
    Call held = *std::exchange(span.held, std::nullopt);
    StartCall(std::move(held));
  }
}

// What needs a rank that has left without calling it does not end. How many sends and receives it
// called is not known: theirs may be on their way.
void NodeEngine::DoomIfLeft(uint64_t number) {
  const auto it = running_.find(number);
  if (it == running_.end()) return;
  SpanState& span = *it->second->span;
  const Call& call = it->second->call;
  for (const auto& [rank, left] : span.left) {
    NodeFailure failure{board::FailureReason::kRankLeft,
                        absl::StrCat(call.words, ", but ", left.words, " has left")};
    if (call.channel != 0) {
      const auto pair = static_cast<int>(call.channel - 1);
      const int world = span.span.map.world();
      if (pair / world == rank || pair % world == rank) return Doom(number, std::move(failure));
    } else if (call.sequence > left.collectives) {
      absl::StrAppend(&failure.text, " after ", left.collectives, " collectives");
      return FailSpan(span, failure, true);
    }
  }
}

// Unless it ends soon, or somebody says why it does not.
void NodeEngine::Doom(uint64_t number, NodeFailure failure) {
  Running& running = *running_.at(number);
  if (std::exchange(running.doomed, true)) return;
  overdue_.push_back({NowNs() + kWordsWaitNs, number, std::move(failure)});
}

void NodeEngine::OnStray(const transport::Completion& c) {
  const auto it = spans_.find(c.tag.communicator);
  if (it == spans_.end()) return;
  SpanState& span = *it->second;
  const uint32_t channel = c.tag.channel & ~kAgreement;
  const SpanState::Known* mine = span.Find(channel, c.tag.sequence);
  if (mine == nullptr) {
    if (span.strays.size() < kHistory) {
      span.strays.push_back({c.peer, channel, c.tag.sequence, c.signature});
    }
    return;
  }
  if (mine->signature == c.signature) return;
  Send(span, c.peer, exchange::CalledNote{channel, c.tag.sequence, mine->words});
}

}  // namespace shunt::daemon
