// What the exchange keeps, for the engine's own files.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/node_engine.h"
#include "runtime/core/fnv.h"
#include "runtime/exchange/failover.h"
#include "runtime/exchange/policy_switch.h"

namespace shunt::daemon {

// Stands for this node in lists of peers.
inline constexpr transport::PeerId kSelf = ~0u;

// Slices that go through aggregators at a time.
inline constexpr uint32_t kAggregatedWindow = 16;

// What the exchange through aggregators has for a communicator: one of its own, so that it ends
// without the rest.
inline uint64_t AggregatedId(uint64_t wire_id) { return Fnv1a(wire_id, Fnv1a("aggregated")); }

struct NodeEngine::PeerState {
  NodeKey node;
  std::optional<transport::TcpPeer> info;  // none: spoken of, but not met yet
  std::string gone;                        // why it was forgotten
  bool connected = false;
  exchange::LinkNumbers measured;
};

struct NodeEngine::SpanState {
  Span span;
  std::vector<transport::PeerId> peers;  // by node
  bool failed = false;
  struct Known {
    uint32_t channel;
    uint64_t sequence;
    transport::Signature signature;
    int rank;
    board::CallRecord record;
  };
  std::optional<exchange::PolicySwitch> policies;
  // Aggregators; the exchange through them has peers of its own, they come after the nodes.
  std::vector<transport::PeerId> aggregated_peers;
  std::optional<exchange::Failover> failover;  // none: without aggregators from the start
  bool aggregators_open = false;
  uint64_t completed = 0;  // the highest sequence of channel 0 that has ended
  // Between the loss of an aggregator and the decision what becomes of what was running.
  bool Undecided() const {
    return failover.has_value() && failover->Reported(span.node) && !failover->decided();
  }
  // True if some nodes have begun the operation through aggregators, so that all meet beside it.
  bool RunsAgain(uint64_t sequence) const {
    return failover.has_value() && failover->decided() && failover->RunsAgain() == sequence;
  }
  uint64_t begun = 0;        // the highest sequence of channel 0
  std::optional<Call> held;  // of channel 0: waits for a decision on the policy
  int64_t proposed_ns = 0;
  std::deque<Known> known;  // the last operations that were begun here
  // The last shapes: jobs repeat themselves.
  struct Prepared {
    CollectiveSpec spec;
    uint32_t version;
    int32_t aggregators;
    int node;
    bool pair;
    exchange::Shape shape;
    std::shared_ptr<const exchange::Exchange::Program> program;
  };
  std::vector<Prepared> prepared;
  size_t oldest_prepared = 0;
  struct Stray {
    transport::PeerId peer;
    uint32_t channel;
    uint64_t sequence;
    transport::Signature signature;
  };
  absl::flat_hash_map<int, exchange::LeftNote> left;  // by rank; of other nodes
  std::vector<Stray> strays;                          // of operations that this node has not begun

  const Prepared& Prepare(const CollectiveSpec& spec, int node, bool pair);
  std::string Words(int rank, const board::CallRecord& record) const {
    return absl::StrCat(span.ranks[rank], " called ", board::Text(record));
  }
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
  transport::Signature signature = 0;
  std::array<transport::PeerId, 2> pair_peers;
  std::unique_ptr<exchange::PairTable> pairs;
  std::unique_ptr<exchange::Exchange> data, agreement;
  bool aggregated = false;  // `data` is an exchange through aggregators; null after their loss
  bool has_result = false;  // it had ended before
  bool ran_again = false;
  bool doomed = false;
  int64_t began_ns = 0;
  NetSpec net;
  uint32_t slices = 1;
  LinkModel model;
};

// A communicator that this node adds for.
struct NodeEngine::Aggregation {
  enum class Presence : uint8_t { kUnheard, kOpen, kClosed };
  uint64_t id = 0;       // the exchange's own
  uint64_t wire_id = 0;  // the communicator's
  exchange::NodeMap map;
  std::vector<transport::PeerId> peers;  // by node
  std::vector<Presence> presence;        // by node
  uint64_t last = 0;                     // the last sequence begun
  int running = 0;
};

struct NodeEngine::Adding {
  Aggregation* aggregation = nullptr;
  std::unique_ptr<exchange::Exchange> data;
  uint64_t bytes = 0;  // that it may take
};

}  // namespace shunt::daemon
