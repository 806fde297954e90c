// Aggregators of communicators, on the nodes that they add for: operations through them, and what
// becomes of those when one is lost.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "daemon/node_engine_state.h"
#include "daemon/probe.h"

namespace shunt::daemon {

using exchange::Failover;

void NodeEngine::OpenAggregators(SpanState& span) {
  span.aggregated_peers = span.peers;
  if (span.span.aggregators.empty()) return;
  span.failover.emplace(static_cast<int>(span.peers.size()));
  std::vector<transport::PeerId> aggregators;
  for (const NodeKey& node : span.span.aggregators) aggregators.push_back(PeerIdOf(node));
  span.aggregated_peers.insert(span.aggregated_peers.end(), aggregators.begin(), aggregators.end());
  const uint64_t id = AggregatedId(span.span.wire_id);
  span_of_aggregated_[id] = span.span.wire_id;
  span.aggregators_open = true;
  const absl::Status opened = transport_->Open(id, aggregators);
  if (!opened.ok()) {
    return FreezeSoon(span, absl::StrCat("its aggregators cannot be reached: ", opened.message()));
  }
  for (const transport::PeerId peer : aggregators) {
    SendOn(id, peer, exchange::PresenceNote{true});
  }
}

// Nothing that went through aggregators touches memory after this.
void NodeEngine::CloseAggregators(SpanState& span) {
  if (!std::exchange(span.aggregators_open, false)) return;
  const uint64_t id = AggregatedId(span.span.wire_id);
  for (size_t i = span.peers.size(); i < span.aggregated_peers.size(); ++i) {
    SendOn(id, span.aggregated_peers[i], exchange::PresenceNote{false});
  }
  transport_->Close(id);
  span_of_aggregated_.erase(id);
}

void NodeEngine::BeginAggregated(Running& running, exchange::Exchange::Setup* setup) {
  SpanState& span = *running.span;
  running.aggregated = true;
  setup->header.tag.communicator = AggregatedId(span.span.wire_id);
  setup->peers = span.aggregated_peers;
  setup->window = kAggregatedWindow;
  setup->sends_max = 1;  // hosts go round the aggregators, one at each
  if (span.span.node != 0) return;
  const CollectiveSpec& spec = running.call.spec;
  exchange::AddNote note{running.call.sequence,
                         setup->header.signature,
                         static_cast<uint8_t>(spec.dtype),
                         static_cast<uint8_t>(spec.redop),
                         spec.count,
                         static_cast<uint16_t>(span.span.aggregators.size()),
                         0,
                         setup->shape.slices};
  for (size_t i = 0; i < span.span.aggregators.size(); ++i) {
    note.index = static_cast<uint16_t>(i);
    if (SendOn(setup->header.tag.communicator, span.aggregated_peers[span.peers.size() + i], note))
      continue;
    FreezeSoon(span,
               absl::StrCat("aggregator ", span.span.aggregators[i].name, " cannot be told of it"));
  }
}

bool NodeEngine::SettleAggregated(Running& running) {
  SpanState& span = *running.span;
  // Its outcome is in what this node has told the others, and must not become another.
  if (span.Undecided()) return false;
  if (running.data == nullptr) return running.has_result;
  if (running.data->status().ok()) return true;
  const int peer = running.data->failed_peer();
  FreezeSoon(span, absl::StrCat("aggregator ",
                                peers_[span.aggregated_peers[static_cast<size_t>(peer)]]->node.name,
                                " takes no part in it any more"));
  return false;
}

// After what the transport has in hand: a loss in words is better than its consequences.
void NodeEngine::FreezeSoon(const SpanState& span, std::string why) {
  Post([this, wire_id = span.span.wire_id, why = std::move(why)] {
    const auto it = spans_.find(wire_id);
    if (it != spans_.end()) Freeze(*it->second, why);
  });
}

void NodeEngine::Freeze(SpanState& span, const std::string& why) {
  if (span.failed || !span.failover.has_value() || span.failover->Reported(span.span.node)) return;
  LogWarn("a communicator uses no aggregators any more",
          {{"wire_id", span.span.wire_id}, {"why", why}});
  if (probe_ != nullptr) probe_->aggregators_lost.Add();
  exchange::LossNote note;
  note.completed = span.completed;
  note.why = why;
  CloseAggregators(span);
  for (const auto& [number, running] : running_) {
    if (running->span != &span || !running->aggregated) continue;
    note.pending = running->call.sequence;
    note.intact = running->data->intact();
    running->has_result = running->data->done() && running->data->status().ok();
    note.has_result = running->has_result;
    note.call = span.Words(running->call.rank, running->call.record);
    running->data.reset();
  }
  span.policies->DropAggregators();
  Publish(span);
  SendToAll(span, note);
  const bool decided = span.failover->Report(span.span.node, std::move(note));
  if (ReportForTheGone(span) || decided) Decide(span);
}

// A node whose ranks have all left has ended what they had called, and may have closed: it reports
// nothing any more. Its words of them came before anything else that it might say.
bool NodeEngine::ReportForTheGone(SpanState& span) {
  if (!span.Undecided()) return false;
  bool decided = false;
  for (int node = 0; node < static_cast<int>(span.peers.size()); ++node) {
    exchange::LossNote note;
    note.why = "its ranks have left";
    bool gone = node != span.span.node;
    for (const int32_t rank : span.span.map.ranks_of[static_cast<size_t>(node)]) {
      const auto left = span.left.find(rank);
      gone = gone && left != span.left.end();
      if (gone) note.completed = std::max(note.completed, left->second.collectives);
    }
    if (gone && span.failover->Report(node, std::move(note))) decided = true;
  }
  return decided;
}

void NodeEngine::OnLoss(SpanState& span, int node, const exchange::LossNote& note) {
  if (span.failed || !span.failover.has_value()) return;
  if (note.completed == ~uint64_t{0} || (note.pending != 0 && note.pending != note.completed + 1)) {
    return FailSpan(span,
                    {board::FailureReason::kStuck,
                     absl::StrCat("node ", span.span.nodes[static_cast<size_t>(node)].name,
                                  " reported operation #", note.pending, " after #", note.completed,
                                  ", expected the next one, when aggregators were lost")},
                    true);
  }
  Freeze(span, note.why);
  if (span.failover->Report(node, note)) Decide(span);
}

void NodeEngine::Decide(SpanState& span) {
  const Failover::Verdict verdict = span.failover->verdict();
  if (verdict == Failover::Verdict::kTooLate || verdict == Failover::Verdict::kOverwritten) {
    return FailSpan(span,
                    {board::FailureReason::kRankDied,
                     absl::StrCat(span.failover->Words(),
                                  verdict == Failover::Verdict::kTooLate
                                      ? "; it cannot be run again: other nodes have its result and "
                                        "may have gone on"
                                      : "; it cannot be run again: its inputs were overwritten "
                                        "already, for its outputs lie in them")},
                    true);
  }
  for (const auto& [number, running] : running_) {
    if (running->span != &span || !running->aggregated) continue;
    const bool again = running->call.sequence == span.failover->RunsAgain();
    if (again) {
      running->has_result = false;  // nothing ends it meanwhile
    } else if (!running->has_result) {
      return FailSpan(
          span,
          {board::FailureReason::kStuck,
           absl::StrCat(span.Words(running->call.rank, running->call.record),
                        ", which other nodes did not report when aggregators were lost")},
          true);
    }
    Post([this, again, wire_id = span.span.wire_id, number = number] {
      if (again) {
        RunAgain(wire_id, number);
      } else {
        Settle(number);
      }
    });
  }
  Post([this, wire_id = span.span.wire_id] {
    const auto it = spans_.find(wire_id);
    if (it == spans_.end() || !it->second->held.has_value()) return;
    Call held = *std::exchange(it->second->held, std::nullopt);
    StartCall(std::move(held));
  });
}

// From its inputs, with the policy that has no aggregators any more. By mail: no completion of the
// exchange that was withdrawn is left in anybody's hand then.
void NodeEngine::RunAgain(uint64_t wire_id, uint64_t number) {
  const auto it = running_.find(number);
  if (it == running_.end() || it->second->call.wire_id != wire_id) return;
  Running& running = *it->second;
  SpanState& span = *running.span;
  LogInfo(
      "an operation is run again without aggregators",
      {{"wire_id", wire_id}, {"operation", span.Words(running.call.rank, running.call.record)}});
  exchange::Exchange::Setup setup;
  setup.node = span.span.node;
  const SpanState::Prepared& prepared = span.Prepare(running.call.spec, setup.node, false);
  setup.shape = prepared.shape;
  setup.program = prepared.program;
  setup.peers = span.peers;
  setup.local = running.call.local;
  setup.header.tag.communicator = wire_id;
  setup.header.tag.sequence = running.call.sequence;
  setup.header.signature = running.signature;
  running.aggregated = false;
  running.ran_again = true;
  running.data = std::make_unique<exchange::Exchange>(std::move(setup), transport_.get(), &pool_,
                                                      number << 32);
  running.data->Start();
  Settle(number);
}

void NodeEngine::LoseAggregator(transport::PeerId peer, const std::string& why) {
  for (const auto& [wire_id, span] : spans_) {
    const auto begin =
        span->aggregated_peers.begin() + static_cast<std::ptrdiff_t>(span->peers.size());
    if (std::find(begin, span->aggregated_peers.end(), peer) == span->aggregated_peers.end())
      continue;
    Freeze(*span, absl::StrCat("aggregator ", peers_[peer]->node.name, " is lost (", why, ")"));
  }
  std::vector<uint64_t> ids;
  for (const auto& [id, aggregation] : aggregations_) ids.push_back(id);
  for (const uint64_t id : ids) LeaveAggregation(id, peer);
}

}  // namespace shunt::daemon
