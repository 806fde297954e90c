#include "runtime/pull/pull_engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"

namespace shunt::pull {
namespace {

using transport::Class;
using transport::Completion;
using transport::PeerId;

// Asks that a peer may send before the first of them has been looked at.
constexpr uint64_t kAsksAhead = 16;
// Transfers of one class that a node has asked one peer for at a time; more wait, in turn among
// users.
constexpr FairLimits kLimits = {.running = 64, .running_at_most = 96, .cost = 64 << 20};
constexpr int kActiveMax = 3 * kLimits.running_at_most;
// Of the arrays of all that a peer has asked for; more asks wait at the peer.
constexpr uint64_t kArraysMax = 256 << 20;
// What a peer has asked for and is not over here: its view of what is over may be ahead.
constexpr size_t kAskedMax = 2 * kActiveMax;
constexpr size_t kNotesUnsentMax = 4096;
// How often peers are looked at for silence.
constexpr int64_t kLookNs = 200'000'000;
// If this node has not looked for so long, it was not the peers who were silent.
constexpr int64_t kStalledNs = 1'000'000'000;
// Of a token: which place, and which of its operations.
constexpr int kIndexBits = 20;
constexpr uint32_t kIndexMask = (1 << kIndexBits) - 1;

constexpr char kFrontierWords[] = "it has posted slices that it cannot have";

constexpr transport::Signature kSignature = 0x7368756e7470756c;

}  // namespace

PullEngine::Peer::Peer()
    : waiting{FairQueue<Waiting>(kLimits), FairQueue<Waiting>(kLimits),
              FairQueue<Waiting>(kLimits)} {}

PullEngine::PullEngine(Options options) : options_(std::move(options)) {}

PullEngine::~PullEngine() = default;

void PullEngine::Stop() {
  for (const auto& [id, peer] : peers_) options_.transport->Close(peer->communicator);
  peers_.clear();
}

// ---- Peers

void PullEngine::PeerUp(PeerId id, uint64_t communicator, bool low) {
  if (!options_.transport->Open(communicator, {id}).ok()) return;  // lost again
  auto& peer = peers_[id];
  peer = std::make_unique<Peer>();
  peer->communicator = communicator;
  peer->channel_out = low ? 1 : 2;
  peer->channel_in = low ? 2 : 1;
  by_communicator_[communicator] = id;
  PostAskReceives(id, *peer);
}

void PullEngine::PeerLost(PeerId id, const std::string& why) {
  Drop(id, absl::UnavailableError(absl::StrCat("the other node is lost (", why, ")")));
}

void PullEngine::Break(PeerId id, const std::string& why) {
  const std::string words = absl::StrCat("its daemon broke the protocol of transfers: ", why);
  Drop(id, absl::UnavailableError(absl::StrCat("the other node is lost (", words, ")")));
  if (options_.broken) options_.broken(id, words);
}

void PullEngine::Drop(PeerId id, const absl::Status& why) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  const std::unique_ptr<Peer> peer = std::move(found->second);
  peers_.erase(found);
  by_communicator_.erase(peer->communicator);
  // Also so that the next connection can open it.
  options_.transport->Close(peer->communicator);
  // What is posted has no completion any more, or one that is in somebody's hands already.
  for (uint32_t index = 0; index < ops_.size(); ++index) {
    if (!ops_[index].live || ops_[index].peer != id) continue;
    Op op = Take(index);
    const auto flow = flows_.find(op.flow);
    if (flow == flows_.end()) continue;
    --flow->second->outstanding;
    if (op.kind == OpKind::kSlice) ForgetSlice(*flow->second, op);
  }
  std::vector<FlowId> flows;
  for (const auto& [number, flow] : peer->out) flows.push_back(flow);
  for (const auto& [number, flow] : peer->in) flows.push_back(flow);
  for (const FlowId id_of_flow : flows) {
    const auto flow = flows_.find(id_of_flow);
    if (flow == flows_.end()) continue;
    Sever(*flow->second, why);
    Check(id_of_flow);
  }
  for (auto& queue : peer->waiting) {
    queue.ForEach([&](const Waiting& waiting) { waiting.outgoing.ended(why); });
  }
}

void PullEngine::PostAskReceives(PeerId id, Peer& peer) {
  // No more than this node can hold: the next ones wait at the peer.
  while (peer.asks_waited.size() < kAsksAhead &&
         peer.in.size() + peer.asks_waited.size() < kAskedMax && peer.arrays_in <= kArraysMax) {
    const uint64_t number = ++peer.asks_posted;
    peer.asks_waited.insert(number);
    Op op;
    op.kind = OpKind::kAskReceive;
    op.peer = id;
    op.number = number;
    op.bytes.resize(kAskBytes);
    const absl::Span<std::byte> buffer = absl::MakeSpan(op.bytes);
    transport::Message message;
    message.peer = id;
    message.tag = {peer.communicator, number, peer.channel_in, kAskStep, 0};
    message.signature = kSignature;
    message.service_class = Class::kLatency;
    options_.transport->PostRecv(message, buffer, Keep(std::move(op)));
  }
}

uint64_t PullEngine::Keep(Op op) {
  uint32_t index;
  if (free_ops_.empty()) {
    index = static_cast<uint32_t>(ops_.size());
    SHUNT_CHECK(index <= kIndexMask);  // kAskedMax and kActiveMax bound them, a peer
    ops_.emplace_back();
  } else {
    index = free_ops_.back();
    free_ops_.pop_back();
  }
  op.live = true;
  op.generation = ops_[index].generation;
  ops_[index] = std::move(op);
  return options_.token_base | (ops_[index].generation << kIndexBits) | index;
}

PullEngine::Op PullEngine::Take(uint32_t index) {
  free_ops_.push_back(index);
  Op op = std::move(ops_[index]);
  ops_[index] = Op();
  ops_[index].generation = op.generation + 1;
  return op;
}

// ---- Transfers that this node asks for

void PullEngine::Start(FlowId id, Outgoing outgoing) {
  const auto found = peers_.find(outgoing.peer);
  if (found == peers_.end()) {
    outgoing.ended(absl::UnavailableError("the other node is not connected"));
    return;
  }
  const auto rank = static_cast<size_t>(outgoing.ask.service_class);
  const uint32_t tenant = outgoing.ask.tenant;
  const uint64_t cost = outgoing.ask.array_bytes();
  found->second->waiting[rank].Push(tenant, cost, {id, std::move(outgoing)});
  StartWaiting(found->first, *found->second);
}

void PullEngine::StartWaiting(PeerId id, Peer& peer) {
  for (auto& queue : peer.waiting) {
    while (std::optional<Waiting> waiting = queue.Begin()) SendAsk(id, peer, *std::move(waiting));
  }
}

void PullEngine::SendAsk(PeerId id, Peer& peer, Waiting waiting) {
  auto flow = std::make_shared<Flow>();
  flow->id = waiting.id;
  flow->peer = id;
  flow->number = peer.next_number++;
  flow->initiator = true;
  flow->source = waiting.outgoing.ask.push;
  flow->ask = std::move(waiting.outgoing.ask);
  flow->slices = static_cast<uint32_t>(flow->ask.slices());
  flow->side = std::move(waiting.outgoing.side);
  flow->ended = std::move(waiting.outgoing.ended);
  peer.out[flow->number] = flow->id;
  Op ask;
  ask.kind = OpKind::kAskSend;
  ask.peer = id;
  ask.flow = flow->id;
  ask.bytes.resize(kAskBytes);
  Encode(flow->ask, absl::MakeSpan(ask.bytes));
  absl::Span<const std::byte> bytes = ask.bytes;
  flow->outstanding = 1;
  transport::Message message = MessageOf(*flow, kAskStep, 0);
  message.service_class = Class::kLatency;
  options_.transport->PostSend(message, bytes, Keep(std::move(ask)));
  if (!waiting.outgoing.array.empty()) {
    Op array;
    array.kind = OpKind::kArraySend;
    array.peer = id;
    array.flow = flow->id;
    array.bytes = std::move(waiting.outgoing.array);
    bytes = array.bytes;
    ++flow->outstanding;
    options_.transport->PostSend(MessageOf(*flow, kArrayStep, 0), bytes, Keep(std::move(array)));
  }
  turns_[flow->rank()].push_back(flow->id);
  flows_[flow->id] = std::move(flow);
}

transport::Message PullEngine::MessageOf(const Flow& flow, uint32_t step, uint32_t slice) const {
  const Peer& peer = *peers_.at(flow.peer);
  transport::Message message;
  message.peer = flow.peer;
  message.tag = {peer.communicator, flow.number,
                 flow.initiator ? peer.channel_out : peer.channel_in, step, slice};
  message.signature = kSignature;
  message.service_class = flow.ask.service_class;
  return message;
}

void PullEngine::Cancel(FlowId id, const absl::Status& why) {
  const auto flow = flows_.find(id);
  if (flow != flows_.end()) {
    Stop(*flow->second, why);
    Check(id);
    return;
  }
  for (auto& [number, peer] : peers_) {
    for (auto& queue : peer->waiting) {
      const std::optional<Waiting> waiting =
          queue.Remove([&](const Waiting& w) { return w.id == id; });
      if (!waiting.has_value()) continue;
      waiting->outgoing.ended(why);
      return;
    }
  }
}

// ---- Transfers that others ask for

void PullEngine::OnAsk(Peer& peer, Op op) {
  peer.asks_waited.erase(op.number);
  absl::StatusOr<Ask> ask = DecodeAsk(op.bytes);
  if (!ask.ok()) return Break(op.peer, std::string(ask.status().message()));
  peer.arrays_in += ask->array_bytes();
  auto owned = std::make_shared<Flow>();
  Flow& flow = *owned;
  flow.id = NewId();
  flow.peer = op.peer;
  flow.number = op.number;
  flow.ask = *std::move(ask);
  flow.source = !flow.ask.push;
  flow.slices = static_cast<uint32_t>(flow.ask.slices());
  peer.in[flow.number] = flow.id;
  turns_[static_cast<size_t>(flow.ask.service_class)].push_back(flow.id);
  flows_[flow.id] = std::move(owned);
  const FlowId id = flow.id;
  PostAskReceives(op.peer, peer);
  if (const auto early = peer.early_stops.find(flow.number); early != peer.early_stops.end()) {
    const Note stop = early->second;
    peer.early_stops.erase(early);
    if (!TakeFrontier(flow, stop)) return Break(op.peer, kFrontierWords);
    Stop(flow, absl::Status(stop.code, stop.words));
  }
  if (flow.ask.array_bytes() == 0) {
    LookUp(flow, {});
    return;
  }
  Op array;
  array.kind = OpKind::kArrayReceive;
  array.peer = op.peer;
  array.flow = id;
  array.bytes.resize(flow.ask.array_bytes());
  const absl::Span<std::byte> buffer = absl::MakeSpan(array.bytes);
  ++flow.outstanding;
  options_.transport->PostRecv(MessageOf(flow, kArrayStep, 0), buffer, Keep(std::move(array)));
}

void PullEngine::LookUp(Flow& flow, std::vector<std::byte> array) {
  if (flow.stopping()) return Check(flow.id);
  flow.looking_up = true;
  options_.resolve(
      flow.peer, flow.id, flow.ask, std::move(array),
      [this, id = flow.id, weak = std::weak_ptr<bool>(alive_)](absl::StatusOr<Incoming> incoming) {
        if (!weak.expired()) OnResolved(id, std::move(incoming));
      });
}

void PullEngine::OnResolved(FlowId id, absl::StatusOr<Incoming> incoming) {
  Flow& flow = *flows_.at(id);  // it does not end while it is looked up
  flow.looking_up = false;
  if (!incoming.ok()) {
    Stop(flow, incoming.status());
  } else {
    flow.ended = std::move(incoming->ended);
    if (incoming->side.selection.payload_bytes() != flow.ask.bytes) {
      Stop(flow, absl::InvalidArgumentError(
                     absl::StrCat("the pieces have ", incoming->side.selection.payload_bytes(),
                                  " bytes, but ", flow.ask.bytes, " were asked for")));
    }
    flow.side = std::move(incoming->side);
  }
  Check(id);
  Pump();
}

// ---- Ends

void PullEngine::Check(FlowId id) {
  const auto found = flows_.find(id);
  if (found == flows_.end()) return;
  Flow& flow = *found->second;
  if (flow.all_there && flow.Idle()) return End(id, absl::OkStatus());
  if (flow.stopping() || flow.severed) {
    if (flow.Drained()) End(id, flow.status);
    return;
  }
  if (flow.done < flow.slices || !flow.Idle()) return;
  // A source hears from the sink when somebody is to be told; a sink is told by its own slices.
  const bool told = flow.ask.push || flow.ask.notify;
  if (flow.source) {
    if (!told) End(id, absl::OkStatus());
    return;
  }
  if (told) {
    flow.side.reset();  // its owner may free the memory as soon as it knows
    // First the notification, then the word that all is there.
    if (!flow.initiator && flow.ended) std::exchange(flow.ended, nullptr)(absl::OkStatus());
    Note done;
    done.kind = Note::Kind::kDone;
    done.number = flow.number;
    done.by_receiver = !flow.initiator;
    Tell(flow.peer, *peers_.at(flow.peer), done);
  }
  End(id, absl::OkStatus());
}

void PullEngine::End(FlowId id, const absl::Status& status) {
  const auto found = flows_.find(id);
  const std::shared_ptr<Flow> flow = std::move(found->second);
  flows_.erase(found);
  const auto peer = peers_.find(flow->peer);
  if (peer != peers_.end()) {
    Peer& of = *peer->second;
    auto& numbers = flow->initiator ? of.out : of.in;
    const auto number = numbers.find(flow->number);
    // Not of a connection before this one.
    if (number != numbers.end() && number->second == id) {
      numbers.erase(number);
      const uint64_t array_bytes = flow->ask.array_bytes();
      if (flow->initiator) {
        of.waiting[flow->rank()].Done(flow->ask.tenant, array_bytes);
      } else {
        of.arrays_in -= array_bytes;
        PostAskReceives(peer->first, of);
      }
    }
  }
  flow->side.reset();  // its owner may free the memory as soon as it knows
  if (flow->ended) flow->ended(status);
  if (peer != peers_.end() && flow->initiator) StartWaiting(peer->first, *peer->second);
}

void PullEngine::Sever(Flow& flow, const absl::Status& why) {
  flow.severed = true;
  if (!flow.stop_told) flow.status = why;
}

void PullEngine::Stop(Flow& flow, const absl::Status& why) {
  if (flow.severed || flow.stop_told || flow.all_there) return;
  flow.status = why;
  flow.stop_told = true;
  flow.stopped_ns = now_ns_;
  flow.own_frontier = flow.posted;
  Note stop;
  stop.kind = Note::Kind::kStop;
  stop.number = flow.number;
  stop.by_receiver = !flow.initiator;
  stop.frontier = flow.own_frontier;
  stop.code = why.code();
  stop.words = std::string(why.message());
  Tell(flow.peer, *peers_.at(flow.peer), stop);
}

bool PullEngine::Silent(const Flow& flow) const {
  if (!flow.stop_told || flow.severed) return false;
  // Its word overtakes all slices; what is under way takes its time, but not for ever.
  const int64_t stopped_for_ns = now_ns_ - flow.stopped_ns;
  if (!flow.other_frontier.has_value()) return stopped_for_ns > options_.silence_ns;
  if (flow.outstanding == 0) return false;  // this node's own doing
  if (stopped_for_ns > options_.drain_ns) return true;
  return stopped_for_ns > options_.silence_ns &&
         now_ns_ - peers_.at(flow.peer)->moved_ns > options_.silence_ns;
}

void PullEngine::Tick(int64_t now_ns) {
  now_ns_ = now_ns;
  if (now_ns - looked_ns_ < kLookNs) return;
  const bool stalled = now_ns - looked_ns_ > kStalledNs;
  looked_ns_ = now_ns;
  for (const auto& [id, peer] : peers_) {
    const transport::PeerCounters counters = options_.transport->counters(id);
    const uint64_t moved = counters.payload_bytes_sent + counters.payload_bytes_received;
    if (std::exchange(peer->moved, moved) != moved || stalled) peer->moved_ns = now_ns;
  }
  if (stalled) return;
  std::vector<std::shared_ptr<Flow>> silent;
  for (const auto& [id, flow] : flows_) {
    if (Silent(*flow)) silent.push_back(flow);
  }
  for (const std::shared_ptr<Flow>& flow : silent) {
    if (flow->severed) continue;  // with another one of its peer's
    Break(flow->peer,
          absl::StrCat("it has not ended its half of transfer ", flow->number,
                       ", which was given up ", (now_ns - flow->stopped_ns) / 1'000'000'000,
                       " s ago (", flow->status.message(), ")"));
  }
}

void PullEngine::Tell(PeerId id, Peer& peer, Note note) {
  if (peer.unsent.size() >= kNotesUnsentMax) return;  // it does not poll: it will be lost
  peer.unsent.push_back(std::move(note));
  FlushNotes(id, peer);
}

void PullEngine::FlushNotes(PeerId id, Peer& peer) {
  while (!peer.unsent.empty()) {
    const std::string bytes =
        Encode(peer.unsent.front(), options_.transport->limits().note_bytes_max);
    const absl::Status sent = options_.transport->SendNote(
        id, peer.communicator,
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
    if (absl::IsResourceExhausted(sent)) return;
    peer.unsent.pop_front();
  }
}

// ---- What the transport says

void PullEngine::OnCompletion(const Completion& completion) {
  const auto token = static_cast<uint32_t>(completion.token);
  const uint32_t index = token & kIndexMask;
  // One that was polled before its peer was dropped.
  if (index >= ops_.size() || !ops_[index].live ||
      (ops_[index].generation << kIndexBits | index) != token) {
    return;
  }
  Op op = Take(index);
  const bool ok = completion.code == absl::StatusCode::kOk;
  if (op.kind == OpKind::kAskReceive) {
    const auto peer = peers_.find(op.peer);
    if (ok && peer != peers_.end()) OnAsk(*peer->second, std::move(op));
    return;
  }
  Flow& flow = *flows_.at(op.flow);
  --flow.outstanding;
  if (!ok) {
    if (op.kind == OpKind::kSlice) ForgetSlice(flow, op);
    if (completion.code == absl::StatusCode::kUnavailable) {
      // The loss of the peer, which says why, comes right behind, and ends the flow; unless this
      // was posted after it.
      if (!peers_.contains(op.peer)) return Check(op.flow);
      return Sever(flow, absl::UnavailableError("the other node is lost"));
    }
    Sever(flow, absl::InternalError("the other node gave up its transfers with this one"));
    return Check(op.flow);
  }
  switch (op.kind) {
    case OpKind::kArrayReceive:
      return LookUp(flow, std::move(op.bytes));
    case OpKind::kSlice:
      return OnSlice(flow, std::move(op));
    default:
      return Check(op.flow);
  }
}

bool PullEngine::TakeFrontier(Flow& flow, const Note& stop) const {
  // Its end has posted all, and forgotten it.
  if (stop.answer && stop.frontier == UINT32_MAX) {
    flow.other_frontier = flow.slices;
    return flow.posted == flow.slices;
  }
  const uint64_t ahead = 2 * Flow::kWindow + options_.transport->limits().eager_slots;
  if (stop.frontier > flow.slices || stop.frontier > flow.posted + ahead) return false;
  flow.other_frontier = stop.frontier;
  return true;
}

void PullEngine::OnNote(const Completion& completion) {
  const auto by = by_communicator_.find(completion.tag.communicator);
  if (by == by_communicator_.end()) return;
  const PeerId id = by->second;
  Peer& peer = *peers_.at(id);
  absl::StatusOr<Note> note = DecodeNote(completion.text);
  if (!note.ok()) return Break(id, std::string(note.status().message()));
  const bool mine = note->by_receiver;  // this node asked for it
  const auto& numbers = mine ? peer.out : peer.in;
  const auto number = numbers.find(note->number);
  if (number == numbers.end()) {
    if (note->kind == Note::Kind::kDone || note->answer) return;
    const bool to_come =
        !mine && (note->number > peer.asks_posted || peer.asks_waited.contains(note->number));
    if (!to_come) {
      // It has ended here: all of it was posted.
      Note answer = *note;
      answer.by_receiver = !mine;
      answer.answer = true;
      answer.frontier = UINT32_MAX;
      return Tell(id, peer, answer);
    }
    if (note->number > peer.asks_posted + kActiveMax) {
      return Break(id, absl::StrCat("it stops transfer ", note->number, ", which it never began"));
    }
    peer.early_stops[note->number] = *note;
    return;
  }
  const FlowId flow_id = number->second;
  Flow& flow = *flows_.at(flow_id);
  if (note->kind == Note::Kind::kDone) {
    if (!flow.source || flow.posted < flow.slices) {
      return Break(
          id, absl::StrCat("it has all of transfer ", note->number, ", of which slices are left"));
    }
    flow.all_there = true;
    flow.status = absl::OkStatus();
  } else {
    if (!TakeFrontier(flow, *note)) return Break(id, kFrontierWords);
    Stop(flow, absl::Status(note->code, note->words));
  }
  Check(flow_id);
}

std::vector<PullEngine::FlowView> PullEngine::View() const {
  std::vector<FlowView> view;
  view.reserve(flows_.size());
  for (const auto& [id, flow] : flows_) {
    view.push_back({id, flow->peer, flow->initiator, flow->source, flow->ask.service_class,
                    flow->ask.bytes,
                    std::min(uint64_t{flow->done} * flow->ask.slice_bytes, flow->ask.bytes),
                    flow->ask.tenant, flow->ask.agent, flow->ask.from});
  }
  return view;
}

}  // namespace shunt::pull
