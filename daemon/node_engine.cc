#include "daemon/node_engine.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "daemon/node_engine_state.h"
#include "runtime/core/clock.h"

namespace shunt::daemon {
namespace {

constexpr size_t kPoolBytes = 256 << 20;
// Between two looks of the driving thread at what else it has to do.
constexpr int kRoundsMax = 64;
// Above those of operations: NextNumber.
constexpr uint64_t kPullTokens = 0xffffffffull << 32;

transport::wire::Token TokenOf(const std::string& secret) {
  transport::wire::Token token{};
  std::memcpy(token.data(), secret.data(), std::min(secret.size(), token.size()));
  return token;
}

}  // namespace

NodeEngine::NodeEngine(Options options)
    : node_(std::move(options.node)),
      wake_(std::move(options.wake)),
      lost_(std::move(options.lost)),
      transport_(std::move(options.transport)),
      probe_(options.probe),
      links_(options.links),
      incarnation_(options.incarnation),
      pool_(kPoolBytes) {
  pull::PullEngine::Options pulls;
  pulls.transport = transport_.get();
  pulls.pool = options.pool;
  pulls.token_base = kPullTokens;
  pulls.post = [this](std::function<void()> f) { Post(std::move(f)); };
  pulls.resolve = [this, resolve = std::move(options.resolve)](
                      transport::PeerId peer, pull::FlowId flow, const pull::Ask& ask,
                      std::vector<std::byte> array, pull::PullEngine::Resolved resolved) {
    resolve(peers_[peer]->node.name, flow, ask, std::move(array), std::move(resolved));
  };
  pulls.broken = [this](transport::PeerId peer, const std::string& why) {
    LogWarn("transfers with a node broken off", {{"node", peers_[peer]->node.name}, {"why", why}});
    if (lost_) lost_(peers_[peer]->node, why);
  };
  pulls_ = std::make_unique<pull::PullEngine>(std::move(pulls));
}

NodeEngine::~NodeEngine() { Stop(); }

void NodeEngine::Stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
  }
  Drive();
  const std::lock_guard driving(driving_);
  std::vector<std::function<void()>> unread;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    unread.swap(mail_);
  }
  transport_->Poll(absl::MakeSpan(completions_));  // the last words
  ended_ = true;
  pulls_->Stop();
  // They hold what calls Close.
  unread.clear();
  running_.clear();
  adding_.clear();
  aggregations_.clear();
  probes_.clear();
  spans_.clear();
}

uint64_t NodeEngine::NextNumber() {
  constexpr uint64_t kNumbers = (uint64_t{1} << 32) - 2;
  do {
    last_number_ = (last_number_ + 2) % kNumbers;
  } while (running_.contains(last_number_) || probes_.contains(last_number_) ||
           adding_.contains(last_number_));
  return last_number_;
}

int64_t NodeEngine::next_ns() const {
  const std::lock_guard driving(driving_);
  return ended_ || overdue_.empty() ? kNeverNs : overdue_.front().due_ns;
}

void NodeEngine::Post(std::function<void()> f) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    mail_.push_back(std::move(f));
  }
  wake_();
}

bool NodeEngine::RunMail() {
  std::vector<std::function<void()>> mail;
  {
    std::lock_guard lock(mutex_);
    mail.swap(mail_);
  }
  for (const std::function<void()>& f : mail) f();
  return !mail.empty();
}

bool NodeEngine::Drive() {
  const std::lock_guard driving(driving_);
  if (ended_) return false;
  drive_began_ns_ = NowNs();
  bool any = false;
  for (int round = 0; round < kRoundsMax; ++round) {
    pulls_->Tick(NowNs());
    const bool mail = RunMail();
    RunOverdue();
    const size_t count = transport_->Poll(absl::MakeSpan(completions_));
    if (count == 0 && !mail) {
      busy_ns_ += NowNs() - drive_began_ns_;
      return any;
    }
    any = true;
    for (size_t i = 0; i < count; ++i) OnCompletion(completions_[i]);
    pulls_->Pump();
  }
  busy_ns_ += NowNs() - drive_began_ns_;
  wake_();  // others have their turn first
  return any;
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

void NodeEngine::Forget(NodeKey node, std::string why) {
  Post([this, node = std::move(node), why = std::move(why)] {
    const auto it = ids_.find(node);
    if (it == ids_.end()) return;
    peers_[it->second]->gone = why;
    if (peers_[it->second]->info.has_value()) transport_->RemovePeer(it->second);
    ids_.erase(it);  // its number is never used again
  });
}

// ---- Transfers

void NodeEngine::StartTransfer(NodeKey node, pull::FlowId id, pull::PullEngine::Outgoing outgoing) {
  auto shared = std::make_shared<pull::PullEngine::Outgoing>(std::move(outgoing));
  Post([this, node = std::move(node), id, shared] {
    const auto peer = ids_.find(node);
    if (peer == ids_.end()) {
      return shared->ended(absl::UnavailableError(
          "it is not connected, or has another incarnation; fetch the section again"));
    }
    shared->peer = peer->second;
    pulls_->Start(id, std::move(*shared));
    pulls_->Pump();
  });
}

void NodeEngine::CancelTransfer(pull::FlowId id, absl::Status why) {
  Post([this, id, why = std::move(why)] {
    pulls_->Cancel(id, why);
    pulls_->Pump();
  });
}

// ---- What the transport says

void NodeEngine::OnCompletion(const transport::Completion& c) {
  switch (c.event) {
    case transport::Event::kSent:
    case transport::Event::kReceived: {
      if (pulls_->Owns(c.token)) return pulls_->OnCompletion(c);
      const uint64_t number = c.token >> 32;
      if (probes_.contains(number)) return OnProbe(number, c);
      const uint64_t operation = number - (number + 1) % 2;  // its own is odd
      const auto it = running_.find(operation);
      if (it == running_.end()) return OnAdded(number, c);
      exchange::Exchange* const exchange =
          (number == operation ? it->second->data : it->second->agreement).get();
      if (exchange != nullptr) exchange->OnCompletion(c);  // null: what Close came too late for
      Settle(operation);
      return;
    }
    case transport::Event::kStray:
      OnStray(c);
      return;
    case transport::Event::kNote:
      if (pulls_->IsCommunicator(c.tag.communicator)) return pulls_->OnNote(c);
      OnNote(c);
      return;
    case transport::Event::kPeerUp: {
      const NodeKey& node = peers_[c.peer]->node;
      LogInfo("node connected", {{"node", node.name}});
      BeginProbe(c.peer);
      pulls_->PeerUp(c.peer, BetweenId(node, "transfers"), node_ < node.name);
      return;
    }
    case transport::Event::kPeerLost: {
      const NodeKey node = peers_[c.peer]->node;
      const std::string& gone = peers_[c.peer]->gone;
      const std::string why = gone.empty() ? c.text : gone;
      // Not if it was forgotten, and may have been met again.
      const auto met = ids_.find(node);
      const bool unexpected = met != ids_.end() && met->second == c.peer;
      if (unexpected) LogWarn("data connection lost", {{"node", node.name}, {"why", c.text}});
      for (const auto& [wire_id, span] : spans_) {
        if (std::find(span->peers.begin(), span->peers.end(), c.peer) == span->peers.end())
          continue;
        FailSpan(*span,
                 {board::FailureReason::kRankDied,
                  absl::StrCat("node ", node.name, " is lost (", why, ")")},
                 true);
      }
      LoseAggregator(c.peer, why);
      pulls_->PeerLost(c.peer, why);
      if (unexpected && lost_) lost_(node, c.text);
      return;
    }
  }
}

}  // namespace shunt::daemon
