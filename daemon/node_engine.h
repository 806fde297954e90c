// What exchanges payload with other nodes: it owns the transport and the exchanges in flight.
//
// It has no thread: whatever is asked of it goes through a mailbox, one thread drives it (the
// scheduler's), and whatever it tells comes on that one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/board/failure.h"
#include "runtime/board/layout.h"
#include "runtime/core/clock.h"
#include "runtime/exchange/choice.h"
#include "runtime/exchange/exchange.h"
#include "runtime/exchange/link_estimate.h"
#include "runtime/exchange/link_probe.h"
#include "runtime/exchange/notes.h"
#include "runtime/pull/pull_engine.h"
#include "runtime/transport/link_tally.h"
#include "runtime/transport/peer_transport.h"

namespace shunt::daemon {

struct Probe;

// A node, in one life of its daemon.
struct NodeKey {
  std::string name;
  uint64_t incarnation = 0;
  bool operator==(const NodeKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const NodeKey& key) {
    return H::combine(std::move(h), key.name, key.incarnation);
  }
};

// Why an exchange, or all of a communicator, cannot succeed.
struct NodeFailure {
  board::FailureReason reason = board::FailureReason::kNone;
  std::string text;
};

class NodeEngine {
 public:
  struct Options {
    std::string node;  // this one's name
    uint64_t incarnation = 0;
    std::unique_ptr<transport::PeerTransport> transport;
    std::function<void()> wake;  // there is mail: Drive soon
    // The data connection to a node that was met is lost; Forget and Meet make another.
    std::function<void(const NodeKey& node, const std::string& why)> lost;
    // Where operations, and what is measured of links, are counted; null: nowhere.
    Probe* probe = nullptr;
    transport::LinkTallies* links = nullptr;
    // For transfers: who gathers and scatters, and who knows what others may ask for.
    p2p::WorkPool* pool = nullptr;
    std::function<void(const std::string& node, pull::FlowId flow, const pull::Ask& ask,
                       std::vector<std::byte> array, pull::PullEngine::Resolved resolved)>
        resolve;
  };
  explicit NodeEngine(Options options);
  ~NodeEngine();
  // Says what there is to say; then nothing is called any more, and what is asked for is forgotten.
  // On another thread than the driving one.
  void Stop();
  NodeEngine(const NodeEngine&) = delete;

  uint16_t port() const { return transport_->port(); }

  // Readable when Drive may have something to do.
  int fd() const { return transport_->fd(); }
  // Does what can be done now; true if anything was. Calls `done` of what ends: the caller holds no
  // lock that it takes.
  bool Drive();
  // When to Drive in any case; kNeverNs if never.
  int64_t next_ns() const;

  // This node is another incarnation from now on. All peers have been forgotten.
  void Renew(uint64_t incarnation);
  // Connects to a peer, once.
  void Meet(NodeKey node, std::string address, uint16_t port, std::string token_to_show,
            std::string token_to_expect);
  // `why`: what its communicators fail with.
  void Forget(NodeKey node, std::string why);

  // A communicator that spans nodes, as this node sees it. The same on all nodes but for `node`.
  struct Span {
    uint64_t wire_id = 0;
    exchange::NodeMap map;
    int node = 0;
    std::vector<NodeKey> nodes;
    std::vector<std::string> ranks;    // this node's, in words
    std::vector<NodeKey> aggregators;  // ready for it; policy.aggregators of them
    exchange::Policy policy;
    bool pinned = false;  // the policy stays
    // This node's ranks call, another node's failed, or is lost: no more operations succeed.
    std::function<void(const NodeFailure&)> failed;
  };
  void Open(Span span);
  void Close(uint64_t wire_id);
  // Tells the other nodes, once.
  void Tell(uint64_t wire_id, NodeFailure failure);
  // Tells the other nodes that a rank of this one, `words`, has left after so many collectives.
  void TellLeft(uint64_t wire_id, int rank, uint64_t collectives, std::string words);

  // An aggregator's: adds for a communicator of those nodes, met before, until all that have begun
  // to use it have closed it or are lost. `done` on the driving thread: UNAVAILABLE if one of them
  // is unknown here, RESOURCE_EXHAUSTED, ALREADY_EXISTS.
  void OpenAggregation(uint64_t wire_id, exchange::NodeMap map, std::vector<NodeKey> nodes,
                       std::function<void(const absl::Status&)> done);
  // Ends it if no node has begun to use it.
  void ExpireAggregation(uint64_t wire_id);

  // How all nodes number the channel of two ranks of different nodes.
  static uint32_t PairChannel(int source, int destination, int world) {
    return 1 + static_cast<uint32_t>(source) * static_cast<uint32_t>(world) +
           static_cast<uint32_t>(destination);
  }

  struct Call {
    uint64_t wire_id = 0;
    uint32_t channel = 0;  // 0, or a PairChannel
    uint64_t sequence = 0;
    CollectiveSpec spec{};                             // of ranks; kSend for a pair
    std::vector<exchange::Exchange::LocalRank> local;  // this node's, by rank; of a pair: the one
    std::vector<board::VRow> tables;  // all_to_all_v: `world` rows of each local rank
    std::shared_ptr<void> pins;       // keeps the buffers
    int rank = 0;                     // this node's first, by its place on the node
    board::CallRecord record;         // its call, for messages
    std::function<void(const absl::Status&)> done;
  };
  void Begin(Call call);

  // Transfers with another node: pull_engine.h. `outgoing.peer` is filled in here.
  pull::FlowId NewTransferId() { return pulls_->NewId(); }
  void StartTransfer(NodeKey node, pull::FlowId id, pull::PullEngine::Outgoing outgoing);
  void CancelTransfer(pull::FlowId id, absl::Status why);

  // On the driving thread, soon; never, if the engine stops first.
  void Post(std::function<void()> f);

  // What was measured of the way to the other nodes. Any thread.
  exchange::LinkNumbers numbers() const;
  // What a communicator chooses plans by. NOT_FOUND if it is not open. Any thread.
  struct View {
    exchange::NodeMap map;
    exchange::Policy policy;
    bool pinned = false;
    uint32_t version = 0;
  };
  absl::StatusOr<View> Describe(uint64_t wire_id) const;

 private:
  struct Running;
  struct SpanState;
  struct PeerState;
  struct Aggregation;
  struct Adding;

  // Of an operation: odd, and not in use. The upper half of tokens, with the next one for the
  // agreement.
  uint64_t NextNumber();
  // Of what two nodes have to say to one another beside all communicators; the same on both.
  uint64_t BetweenId(const NodeKey& other, std::string_view what) const;
  bool RunMail();
  void OnCompletion(const transport::Completion& completion);
  void OnStray(const transport::Completion& completion);
  void OnNote(const transport::Completion& completion);
  void Send(const SpanState& span, transport::PeerId peer, const exchange::Note& note);
  void SendToAll(const SpanState& span, const exchange::Note& note);
  bool SendOn(uint64_t communicator, transport::PeerId peer, const exchange::Note& note);
  // A node's side of aggregators: node_engine_failover.cc.
  void OpenAggregators(SpanState& span);
  void CloseAggregators(SpanState& span);
  void BeginAggregated(Running& running, exchange::Exchange::Setup* setup);
  void FreezeSoon(const SpanState& span, std::string why);
  void Freeze(SpanState& span, const std::string& why);
  // True if that decides.
  bool ReportForTheGone(SpanState& span);
  void OnLoss(SpanState& span, int node, const exchange::LossNote& note);
  void Decide(SpanState& span);
  void RunAgain(uint64_t wire_id, uint64_t number);
  void LoseAggregator(transport::PeerId peer, const std::string& why);
  // True if the exchange of an operation through aggregators has ended, one way or the other, or
  // may not end yet.
  bool SettleAggregated(Running& running);
  // The aggregator's side: node_engine_aggregate.cc.
  void OnAggregationNote(const transport::Completion& completion, const exchange::Note& note);
  void BeginAdding(Aggregation& aggregation, const exchange::AddNote& note);
  void OnAdded(uint64_t number, const transport::Completion& completion);
  void SettleAdding(uint64_t number);
  void LeaveAggregation(uint64_t id, transport::PeerId peer);
  void CloseAggregation(uint64_t id, const std::string& why);
  void DoomIfLeft(uint64_t number);
  void Doom(uint64_t number, NodeFailure failure);
  void Settle(uint64_t number);
  void FailSpan(SpanState& span, const NodeFailure& failure, bool tell);
  // What a peer's words have not explained in time.
  void RunOverdue();
  void StartCall(Call call);
  // Measuring a fresh connection; the node with the smaller name asks.
  void BeginProbe(transport::PeerId peer);
  exchange::LinkProbe::Moment ProbeMoment() const;
  void OnProbe(uint64_t number, const transport::Completion& completion);
  void AddEstimate(const Running& running);
  void Count(const Running& running) const;
  void Publish(const SpanState& span);
  transport::PeerId PeerIdOf(const NodeKey& node);

  const std::string node_;
  const std::function<void()> wake_;
  const std::function<void(const NodeKey&, const std::string&)> lost_;
  const std::unique_ptr<transport::PeerTransport> transport_;
  Probe* const probe_;
  transport::LinkTallies* const links_;

  mutable std::mutex mutex_;
  exchange::LinkNumbers numbers_;
  absl::flat_hash_map<uint64_t, View> views_;  // by wire id
  std::vector<std::function<void()>> mail_;
  bool stopped_ = false;  // no more mail

  // Of who drives.
  mutable std::mutex driving_;  // taken by Stop too
  bool ended_ = false;
  int64_t drive_began_ns_ = 0;
  int64_t busy_ns_ = 0;  // in earlier drives
  std::vector<transport::Completion> completions_{256};
  uint64_t incarnation_;
  exchange::BufferPool pool_;
  std::unique_ptr<pull::PullEngine> pulls_;
  absl::flat_hash_map<NodeKey, transport::PeerId> ids_;
  std::vector<std::unique_ptr<PeerState>> peers_;  // by id
  absl::flat_hash_map<uint64_t, std::unique_ptr<SpanState>> spans_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Running>> running_;  // by number
  uint64_t last_number_ = 1;
  struct Probing {
    uint64_t communicator = 0;
    std::unique_ptr<exchange::LinkProbe> probe;
  };
  absl::flat_hash_map<uint64_t, Probing> probes_;  // by number
  exchange::LinkEstimate estimate_;
  absl::flat_hash_map<uint64_t, uint64_t> span_of_aggregated_;                // wire ids
  absl::flat_hash_map<uint64_t, std::unique_ptr<Aggregation>> aggregations_;  // by aggregated id
  absl::flat_hash_map<uint64_t, std::unique_ptr<Adding>> adding_;             // by number
  uint64_t adding_bytes_ = 0;
  // Operations that fail then. A peer that has closed the communicator has said why before: its
  // words are on their way.
  struct Overdue {
    int64_t due_ns;
    uint64_t number;
    NodeFailure failure;
  };
  std::deque<Overdue> overdue_;
};

}  // namespace shunt::daemon
