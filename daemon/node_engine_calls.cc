// Operations: begun when this node's ranks have all called, ended when the exchange is done.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node_engine_state.h"
#include "daemon/probe.h"
#include "runtime/core/clock.h"
#include "runtime/core/fnv.h"

namespace shunt::daemon {
namespace {

constexpr uint32_t kWindow = 4;  // slices at a time
// Signatures of ended operations, and of such as are not begun here, that are kept for messages
// that come late or early.
constexpr size_t kHistory = 64;
constexpr size_t kPreparedMax = 16;
// Of a rank for another.
constexpr uint64_t kOneByOneBytes = 64 << 10;
// Of channel numbers: what brings the nodes of an operation with a root together, whose data moves
// along edges that two wrong roots might not share.
constexpr uint32_t kAgreement = 1u << 31;

transport::Signature SignatureOf(const CollectiveSpec& spec) {
  uint64_t hash = kFnvSeed;
  for (const uint64_t number :
       {static_cast<uint64_t>(spec.kind), static_cast<uint64_t>(spec.dtype),
        static_cast<uint64_t>(spec.redop), static_cast<uint64_t>(static_cast<uint32_t>(spec.root)),
        spec.count}) {
    hash = Fnv1a(number, hash);
  }
  return hash;
}

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

// The shape's map lives as long as the span.
const NodeEngine::SpanState::Prepared& NodeEngine::SpanState::Prepare(const CollectiveSpec& spec,
                                                                      int node, bool pair) {
  static const exchange::NodeMap pair_map = *exchange::NodeMap::Make({0, 1});
  const uint32_t version = policies->version();
  const int32_t aggregators = policies->policy().aggregators;
  for (const Prepared& p : prepared) {
    if (p.spec == spec && p.version == version && p.aggregators == aggregators && p.node == node &&
        p.pair == pair) {
      return p;
    }
  }
  Prepared fresh{spec, version, aggregators, node, pair, {}, nullptr};
  fresh.shape = exchange::ChooseShape(spec, pair ? pair_map : span.map, policies->policy());
  fresh.program = exchange::Exchange::ProgramOf(fresh.shape.net, node);
  if (prepared.size() < kPreparedMax) return prepared.emplace_back(std::move(fresh));
  oldest_prepared = (oldest_prepared + 1) % kPreparedMax;
  return prepared[oldest_prepared] = std::move(fresh);
}

void NodeEngine::Begin(Call call) {
  Post([this, call = std::move(call)]() mutable { StartCall(std::move(call)); });
}

void NodeEngine::StartCall(Call call) {
  const auto it = spans_.find(call.wire_id);
  if (it == spans_.end() || it->second->failed) {
    call.done(absl::AbortedError("the communicator has failed, or is closed"));
    return;
  }
  SpanState& span = *it->second;
  exchange::PolicySwitch& policies = *span.policies;
  if (call.channel == 0 && span.Undecided()) {
    span.held = std::move(call);
    return;
  }
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
  span.known.push_back({call.channel, call.sequence, signature, call.rank, call.record});
  if (span.known.size() > kHistory) span.known.pop_front();

  auto running = std::make_unique<Running>();
  Running& r = *running;
  r.span = &span;
  r.call = std::move(call);
  r.signature = signature;
  const uint64_t number = NextNumber();

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
    if (spec.kind == OpKind::kAllToAllV) {
      r.pairs = std::make_unique<LocalTable>(span.span.map, span.span.node, r.call.tables);
      setup.pairs = r.pairs.get();
    }
  } else {
    const int source = static_cast<int>((r.call.channel - 1) / world);
    const int destination = static_cast<int>((r.call.channel - 1) % world);
    r.pair_peers = {span.peers[span.span.map.node_of[source]],
                    span.peers[span.span.map.node_of[destination]]};
    spec.kind = OpKind::kBroadcast;
    spec.root = 0;
    setup.node = span.span.map.node_of[source] == span.span.node ? 0 : 1;
    setup.peers = r.pair_peers;
  }
  const auto prepare = [&](exchange::Exchange::Setup& s, const CollectiveSpec& what) {
    const SpanState::Prepared& prepared = span.Prepare(what, s.node, r.call.channel != 0);
    s.shape = prepared.shape;
    s.program = prepared.program;
  };
  prepare(setup, spec);
  if (setup.shape.net.algorithm == Algorithm::kAggregated) BeginAggregated(r, &setup);
  if (setup.shape.net.kind == OpKind::kBroadcast || HasRoot(spec.kind) || r.aggregated ||
      span.RunsAgain(r.call.sequence)) {
    if (r.call.channel == 0) {
      exchange::Exchange::Setup agreement = setup;
      agreement.header.tag.communicator = span.span.wire_id;
      agreement.peers = span.peers;
      CollectiveSpec barrier{};
      barrier.kind = OpKind::kBarrier;
      prepare(agreement, barrier);
      agreement.header.tag.channel |= kAgreement;
      r.agreement = std::make_unique<exchange::Exchange>(std::move(agreement), transport_.get(),
                                                         &pool_, (number + 1) << 32);
    }
  }
  // One message at a time, beginning with another receiver on each node: all at once leave some
  // receivers' links idle while others are waited for.
  if (spec.kind == OpKind::kAllToAll && spec.count * SizeOf(spec.dtype) >= kOneByOneBytes) {
    setup.sends_max = 1;
  }
  r.began_ns = NowNs();
  r.net = setup.shape.net;
  r.slices = setup.shape.slices;
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
    Send(span, stray.peer,
         exchange::CalledNote{r.call.channel, r.call.sequence,
                              span.Words(r.call.rank, r.call.record)});
  }
  Settle(number);
  DoomIfLeft(number);
}

void NodeEngine::Settle(uint64_t number) {
  const auto it = running_.find(number);
  if (it == running_.end()) return;
  Running& r = *it->second;
  if (r.agreement == nullptr || r.agreement->status().ok()) {
    if (r.aggregated && !SettleAggregated(r)) return;
  }
  for (const exchange::Exchange* e : {r.data.get(), r.agreement.get()}) {
    if (e == nullptr || e->status().ok()) continue;
    Doom(number,
         {board::FailureReason::kRankDied, absl::StrCat(r.span->Words(r.call.rank, r.call.record),
                                                        ", but ", e->status().message())});
    return;
  }
  if ((r.data != nullptr && !r.data->done()) || (r.agreement != nullptr && !r.agreement->done()))
    return;
  const std::unique_ptr<Running> ended = std::move(it->second);
  running_.erase(it);
  if (probe_ != nullptr) Count(*ended);
  if (ended->call.channel == 0) {
    ended->span->completed = ended->call.sequence;
    if (!ended->aggregated && !ended->ran_again) AddEstimate(*ended);
  }
  ended->call.done(absl::OkStatus());
}

void NodeEngine::Count(const Running& running) const {
  const auto algorithm = static_cast<size_t>(running.net.algorithm);
  const int world = running.call.channel == 0 ? running.span->span.map.world() : 2;
  probe_->operations.Ended(running.call.spec.kind, algorithm, NowNs() - running.began_ns,
                           BusBytes(running.call.spec, world));
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
  Send(span, c.peer,
       exchange::CalledNote{channel, c.tag.sequence, span.Words(mine->rank, mine->record)});
}

}  // namespace shunt::daemon
