// The aggregator's part: communicators of other nodes, and the operations that it adds for them.
//
//   OpenAggregation ──► node 0's AddNote ──► one exchange an operation, without ranks ──► sums out
//   …  all nodes that began to use it have closed it, or are lost ──► closed
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/rendezvous_table.h"
#include "daemon/log.h"
#include "daemon/node_engine_state.h"

namespace shunt::daemon {
namespace {

constexpr size_t kAggregationsMax = 4096;
// Of one communicator. Node 0 begins an operation when it has the result of the last one, which
// some other nodes may not have yet.
constexpr int kRunningMax = 16;
constexpr uint64_t kCountMax = uint64_t{1} << 40;
// Contributions of that many bytes may lie here, for one operation and for all.
constexpr uint64_t kOperationBytes = 128 << 20;
constexpr uint64_t kAddingBytesMax = uint64_t{2} << 30;

}  // namespace

void NodeEngine::OpenAggregation(uint64_t wire_id, exchange::NodeMap map,
                                 std::vector<NodeKey> nodes,
                                 std::function<void(const absl::Status&)> done) {
  Post([this, wire_id, map = std::move(map), nodes = std::move(nodes), done = std::move(done)] {
    const uint64_t id = AggregatedId(wire_id);
    if (aggregations_.contains(id)) {
      return done(absl::AlreadyExistsError("the communicator is open already"));
    }
    if (aggregations_.size() >= kAggregationsMax) {
      return done(absl::ResourceExhaustedError(absl::StrCat(
          "it adds for ", kAggregationsMax, " communicators already, the most it may")));
    }
    auto aggregation = std::make_unique<Aggregation>();
    aggregation->id = id;
    aggregation->map = map;
    for (const NodeKey& node : nodes) {
      const auto known = ids_.find(node);
      if (known == ids_.end()) {
        return done(absl::UnavailableError(
            absl::StrCat("node ", node.name, " has no data connection to it")));
      }
      aggregation->peers.push_back(known->second);
    }
    aggregation->presence.resize(nodes.size());
    if (const absl::Status opened = transport_->Open(id, aggregation->peers); !opened.ok()) {
      transport_->Close(id);
      return done(opened);
    }
    LogInfo("adds for a communicator", {{"wire_id", wire_id}, {"nodes", nodes.size()}});
    aggregation->wire_id = wire_id;
    aggregations_[id] = std::move(aggregation);
    done(absl::OkStatus());
  });
}

void NodeEngine::ExpireAggregation(uint64_t wire_id) {
  Post([this, id = AggregatedId(wire_id)] {
    const auto it = aggregations_.find(id);
    if (it == aggregations_.end()) return;
    const auto& presence = it->second->presence;
    if (std::all_of(presence.begin(), presence.end(),
                    [](auto p) { return p == Aggregation::Presence::kUnheard; })) {
      CloseAggregation(id, "no node began to use it");
    }
  });
}

// Notes on communicators that are none of this node's ranks.
void NodeEngine::OnAggregationNote(const transport::Completion& c, const exchange::Note& note) {
  const uint64_t id = c.tag.communicator;
  if (const auto span = span_of_aggregated_.find(id); span != span_of_aggregated_.end()) {
    // From an aggregator, which adds no more for it.
    if (const auto* failed = std::get_if<exchange::FailedNote>(&note)) {
      Freeze(*spans_.at(span->second),
             absl::StrCat("aggregator ", peers_[c.peer]->node.name, " gave up: ", failed->words));
    }
    return;
  }
  const auto it = aggregations_.find(id);
  if (it == aggregations_.end()) return;
  Aggregation& aggregation = *it->second;
  const auto from = std::find(aggregation.peers.begin(), aggregation.peers.end(), c.peer);
  if (from == aggregation.peers.end()) return;
  if (const auto* presence = std::get_if<exchange::PresenceNote>(&note)) {
    if (!presence->open) return LeaveAggregation(id, c.peer);
    auto& known = aggregation.presence[static_cast<size_t>(from - aggregation.peers.begin())];
    if (known == Aggregation::Presence::kUnheard) known = Aggregation::Presence::kOpen;
  } else if (const auto* add = std::get_if<exchange::AddNote>(&note)) {
    if (from == aggregation.peers.begin()) BeginAdding(aggregation, *add);
  }
}

void NodeEngine::BeginAdding(Aggregation& aggregation, const exchange::AddNote& note) {
  CollectiveSpec call{};
  call.kind = OpKind::kAllReduce;
  call.dtype = static_cast<DataType>(note.dtype);
  call.redop = static_cast<Redop>(note.redop);
  call.count = note.count;
  if (!IsValid(call.dtype) || !IsValid(call.redop) || note.count > kCountMax ||
      note.aggregators == 0 || note.aggregators > cluster::kAggregatorsMax ||
      note.index >= note.aggregators || note.slices == 0 || note.slices > exchange::kSlicesMax ||
      note.sequence <= aggregation.last || aggregation.running >= kRunningMax) {
    return CloseAggregation(
        aggregation.id,
        absl::StrCat("node ", peers_[aggregation.peers[0]]->node.name, " asked for a sum #",
                     note.sequence, " of ", note.count, " elements of type ", note.dtype,
                     ", operator ", note.redop, ", part ", note.index, " of ", note.aggregators,
                     ", in ", note.slices, " slices", ", after #", aggregation.last, " with ",
                     aggregation.running, " running: not within its bounds"));
  }
  const exchange::Shape shape =
      exchange::AggregatedShape(call, aggregation.map, note.aggregators, note.slices);
  // Of one slice: what comes from every node and the sum, in buffers of powers of two.
  const uint64_t block = BlockRangeOf(shape.net, note.index, note.count).count;
  const uint64_t slice_bytes = (block / shape.slices + 1) * SizeOf(call.dtype);
  const uint64_t bytes = 2 * slice_bytes * (aggregation.peers.size() + 1);
  const uint64_t window =
      std::clamp<uint64_t>(kOperationBytes / std::max<uint64_t>(1, bytes), 1, kAggregatedWindow);
  if (adding_bytes_ + window * bytes > kAddingBytesMax) {
    return CloseAggregation(
        aggregation.id,
        absl::StrCat("it needs ", window * bytes, " bytes for the next sum, ", adding_bytes_,
                     " of at most ", kAddingBytesMax, " are in use"));
  }
  exchange::Exchange::Setup setup;
  setup.shape = shape;
  setup.node = aggregation.map.nodes() + note.index;
  setup.program = exchange::Exchange::ProgramOf(shape.net, setup.node);
  setup.header.tag.communicator = aggregation.id;
  setup.header.tag.sequence = note.sequence;
  setup.header.signature = note.signature;
  setup.peers = aggregation.peers;
  setup.window = static_cast<uint32_t>(window);
  setup.sends_max = 1;
  const uint64_t number = NextNumber();
  auto adding = std::make_unique<Adding>();
  adding->aggregation = &aggregation;
  adding->bytes = window * bytes;
  adding->data = std::make_unique<exchange::Exchange>(std::move(setup), transport_.get(), &pool_,
                                                      number << 32);
  aggregation.last = note.sequence;
  ++aggregation.running;
  adding_bytes_ += adding->bytes;
  exchange::Exchange& data = *adding->data;
  adding_.emplace(number, std::move(adding));
  data.Start();
  SettleAdding(number);
}

void NodeEngine::OnAdded(uint64_t number, const transport::Completion& completion) {
  const auto it = adding_.find(number);
  if (it == adding_.end()) return;
  it->second->data->OnCompletion(completion);
  SettleAdding(number);
}

void NodeEngine::SettleAdding(uint64_t number) {
  const auto it = adding_.find(number);
  Adding& adding = *it->second;
  const absl::Status& status = adding.data->status();
  if (absl::IsUnavailable(status) || absl::IsAborted(status)) {
    // A node is lost, or has closed it: so will all others, and its buffers stay until then.
    return;
  }
  if (!status.ok()) {
    return CloseAggregation(adding.aggregation->id, std::string(status.message()));
  }
  if (!adding.data->done()) return;
  --adding.aggregation->running;
  adding_bytes_ -= adding.bytes;
  adding_.erase(it);
}

// The node has closed it, or is lost.
void NodeEngine::LeaveAggregation(uint64_t id, transport::PeerId peer) {
  using Presence = Aggregation::Presence;
  Aggregation& aggregation = *aggregations_.at(id);
  const auto from = std::find(aggregation.peers.begin(), aggregation.peers.end(), peer);
  if (from == aggregation.peers.end()) return;
  auto& presence = aggregation.presence;
  presence[static_cast<size_t>(from - aggregation.peers.begin())] = Presence::kClosed;
  // Who has not come yet comes in vain: a communicator without one of its nodes adds nothing.
  if (std::find(presence.begin(), presence.end(), Presence::kOpen) == presence.end()) {
    CloseAggregation(id, "");
  }
}

// `why`, if it is not for the nodes to know already.
void NodeEngine::CloseAggregation(uint64_t id, const std::string& why) {
  const std::unique_ptr<Aggregation> aggregation = std::move(aggregations_.at(id));
  aggregations_.erase(id);
  if (why.empty()) {
    LogInfo("adds no more for a communicator", {{"wire_id", aggregation->wire_id}});
  } else {
    LogWarn("adds no more for a communicator", {{"wire_id", aggregation->wire_id}, {"why", why}});
    for (const transport::PeerId peer : aggregation->peers) {
      SendOn(id, peer, exchange::FailedNote{0, why});
    }
  }
  transport_->Close(id);
  for (auto it = adding_.begin(); it != adding_.end();) {
    if (it->second->aggregation != aggregation.get()) {
      ++it;
      continue;
    }
    adding_bytes_ -= it->second->bytes;
    adding_.erase(it++);
  }
}

}  // namespace shunt::daemon
