// A communicator's part in operations that need other nodes: what this node's ranks have called
// goes to the engine, in order; what the engine or another node says comes back to the board.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/communicator.h"
#include "daemon/pin_scope.h"
#include "runtime/board/failure.h"

namespace shunt::daemon {
namespace {

constexpr std::chrono::seconds kCallStatusTimeout(1);

std::string_view View(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// What other nodes say of their ranks.
struct Inquiry {
  size_t open = 0;
  std::string missing;

  void Add(const std::string& text) {
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", text);
  }
};

}  // namespace

void Communicator::Span(NodeEngine* engine, NodeEngine::Span span) {
  engine_ = engine;
  wire_id_ = span.wire_id;
  nodes_ = span.nodes;
  node_of_ = span.map.node_of;
  node_ = span.node;
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    span.ranks.push_back(board::RankText(board_, rank));
  }
  span.failed = [weak = weak_from_this()](const NodeFailure& failure) {
    if (const auto self = weak.lock()) self->Fail(failure);
  };
  engine->Open(std::move(span));
}

std::vector<cluster::RankCall> Communicator::RankCalls() const {
  std::vector<cluster::RankCall> calls;
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    calls.push_back({numbers_[rank], board_.row(rank).pid.load(std::memory_order_relaxed),
                     server_.LastCall(rank), server_.Posted(rank)});
  }
  return calls;
}

void Communicator::Fail(const NodeFailure& failure) {
  board::RecordFailure(board_, failure.reason, -1, failure.text);
  std::lock_guard lock(mutex_);
  NoticeFailureLocked();
  ScheduleAllLocked();
}

void Communicator::RunRemote(uint32_t channel) {
  std::unique_lock lock(mutex_);
  ChannelQueue& queue = queues_[channel];  // stays: only this function erases it
  do {
    queue.again = false;
    if (server_.failed()) {
      NoticeFailureLocked();
      std::map<uint64_t, Served> pending = std::move(queue.pending);
      queue.pending.clear();
      lock.unlock();
      const absl::Status outcome = server_.OutcomeOfFailed();
      for (auto& [seq, served] : pending) Complete(channel, seq, std::move(served), outcome);
      lock.lock();
      continue;
    }
    RemoteChannel& state = remote_[channel];
    if (state.busy) break;  // Exchanged comes back
    NodeEngine::Call call;
    board::Gathered gathered;
    board::Service service;
    {
      PinScope scope;
      service = server_.Gather(channel, state.next, &gathered);
      call.pins = std::make_shared<std::vector<std::shared_ptr<memory::Region>>>(scope.Take());
    }
    if (service == board::Service::kFailed) {
      NoticeFailureLocked();
      ScheduleAllLocked();
      continue;
    }
    if (service != board::Service::kSucceeded) continue;
    state.busy = true;
    state.began_ns = NowNs();
    call.wire_id = wire_id_;
    if (channel != 0) {
      const board::Board::Pair pair = board_.PairOf(channel);
      call.channel = NodeEngine::PairChannel(pair.source, pair.destination, world_);
    }
    call.sequence = state.next;
    call.spec = gathered.spec;
    for (const board::Gathered::Rank& rank : gathered.ranks) {
      call.local.push_back({rank.in, rank.out, rank.scalar});
    }
    call.tables.assign(gathered.tables.begin(), gathered.tables.end());
    const int first = board_.RankOf(channel, 0);
    call.rank = state.rank = first;
    call.record = state.record = board::LastCallRecord(board_, first);
    call.done = [self = shared_from_this(), channel, seq = state.next](const absl::Status& s) {
      self->Exchanged(channel, seq, s);
    };
    engine_->Begin(std::move(call));
  } while (queue.again);
  queue.scheduled = false;
  if (queue.pending.empty()) queues_.erase(channel);
}

// By who drives the engine.
void Communicator::Exchanged(uint32_t channel, uint64_t seq, const absl::Status& outcome) {
  if (outcome.ok()) {
    server_.Finish(channel, seq);
  } else {
    server_.Fail(channel, seq, board::FailureReason::kStuck, -1, View(outcome));
  }
  std::unique_lock lock(mutex_);
  RemoteChannel& state = remote_[channel];
  state.busy = false;
  exchanging_ns_.Add(static_cast<uint64_t>(NowNs() - state.began_ns));
  ++state.next;
  ChannelQueue& queue = queues_[channel];
  auto node = queue.pending.extract(seq);
  ScheduleLocked(channel, queue);
  lock.unlock();
  if (!node.empty()) {
    Complete(channel, seq, std::move(node.mapped()),
             outcome.ok() ? outcome : server_.OutcomeOfFailed());
  }
}

// Whoever else has called nothing of that sequence is missing. Of a pair only the other end counts.
void Communicator::AskWhoIsMissing(uint32_t channel, uint64_t seq) {
  int peer = -1;
  if (channel != 0) {
    const board::Board::Pair pair = board_.PairOf(channel);
    peer = pair.source_here ? pair.destination : pair.source;
  }
  if (host_->cluster == nullptr) return;  // this daemon is leaving, and ends everything
  const auto inquiry = std::make_shared<Inquiry>();
  std::vector<std::string> asked;
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
    if (node != node_ && (peer < 0 || node_of_[peer] == node)) asked.push_back(nodes_[node].name);
  }
  inquiry->open = asked.size();
  for (const std::string& name : asked) {
    host_->cluster->CallStatus(
        name, wire_id_, kCallStatusTimeout,
        [self = shared_from_this(), inquiry, channel, seq, peer,
         name](const absl::StatusOr<std::vector<cluster::RankCall>>& calls) {
          if (!calls.ok()) {
            inquiry->Add(absl::StrCat("node ", name, ", whose daemon gives no answer (",
                                      calls.status().message(), ")"));
          } else {
            for (const cluster::RankCall& call : *calls) {
              if (peer < 0 ? call.collectives >= seq : call.rank != peer) continue;
              inquiry->Add(absl::StrCat(
                  "rank ", call.rank, " (pid ", call.pid, ") on node ", name,
                  call.last_call.empty() ? ", which never called" : ", whose last call was ",
                  call.last_call));
            }
          }
          if (--inquiry->open == 0) self->FailAbsent(channel, seq, inquiry->missing);
        });
  }
}

void Communicator::FailAbsent(uint32_t channel, uint64_t seq, const std::string& missing) {
  std::string words;
  {
    std::lock_guard lock(mutex_);
    const RemoteChannel& state = remote_[channel];
    if (!state.busy || state.next != seq) return;  // it has ended meanwhile
    words =
        absl::StrCat(board::RankText(board_, state.rank), " called ", board::Text(state.record));
  }
  Fail({board::FailureReason::kAbsent,
        absl::StrCat(words, " on communicator '", key_.name, "' and waited until its deadline",
                     missing.empty() ? ": all ranks called, but it did not end" : " for ",
                     missing)});
}

}  // namespace shunt::daemon
