// Communicators of several nodes: opened, failed, closed, and what nodes tell each other of them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/node_engine_state.h"
#include "daemon/probe.h"
#include "runtime/core/clock.h"

namespace shunt::daemon {
namespace {

// A peer that has closed has said why before; its words may be on their way for so long.
constexpr int64_t kWordsWaitNs = 500'000'000;

}  // namespace

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
    OpenAggregators(s);
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
    CloseAggregators(*it->second);
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
  CloseAggregators(span);
  if (!ended.empty()) transport_->Close(span.span.wire_id);
  for (const std::unique_ptr<Running>& running : ended) {
    if (probe_ != nullptr) probe_->operations.Failed();
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
  // A peer that cannot be told is lost, which tells it as much, or has closed.
  (void)SendOn(span.span.wire_id, peer, note);
}

bool NodeEngine::SendOn(uint64_t communicator, transport::PeerId peer, const exchange::Note& note) {
  const std::string bytes = exchange::Encode(note, transport_->limits().note_bytes_max);
  return transport_
      ->SendNote(
          peer, communicator,
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()))
      .ok();
}

void NodeEngine::SendToAll(const SpanState& span, const exchange::Note& note) {
  for (const transport::PeerId peer : span.peers) {
    if (peer != kSelf) Send(span, peer, note);
  }
}

void NodeEngine::OnNote(const transport::Completion& c) {
  const auto it = spans_.find(c.tag.communicator);
  const std::optional<exchange::Note> note = exchange::Decode(c.text);
  if (!note.has_value()) return;
  if (it == spans_.end()) return OnAggregationNote(c, *note);
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
              absl::StrCat("the calls do not match: ", span.Words(mine->rank, mine->record),
                           "; on node ", peers_[c.peer]->node.name, " ", called->words)},
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
    if (!span.failed && ReportForTheGone(span)) Decide(span);
  } else if (const auto* loss = std::get_if<exchange::LossNote>(&*note)) {
    const auto from = std::find(span.peers.begin(), span.peers.end(), c.peer);
    if (from != span.peers.end()) OnLoss(span, static_cast<int>(from - span.peers.begin()), *loss);
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
    NodeFailure failure{
        board::FailureReason::kRankLeft,
        absl::StrCat(span.Words(call.rank, call.record), ", but ", left.words, " has left")};
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

}  // namespace shunt::daemon
