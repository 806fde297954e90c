// What the exchange thread keeps, for the engine's own files.
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
#include "runtime/exchange/policy_switch.h"

namespace shunt::daemon {

// Stands for this node in lists of peers.
inline constexpr transport::PeerId kSelf = ~0u;

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
    int rank;
    board::CallRecord record;
  };
  std::optional<exchange::PolicySwitch> policies;
  uint64_t begun = 0;        // the highest sequence of channel 0
  std::optional<Call> held;  // of channel 0: waits for a decision on the policy
  int64_t proposed_ns = 0;
  std::deque<Known> known;  // the last operations that were begun here
  // The last shapes: jobs repeat themselves.
  struct Prepared {
    CollectiveSpec spec;
    uint32_t version;
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
  std::array<transport::PeerId, 2> pair_peers;
  std::unique_ptr<exchange::PairTable> pairs;
  std::unique_ptr<exchange::Exchange> data, agreement;
  bool doomed = false;
  int64_t began_ns = 0;
  NetSpec net;
  LinkModel model;
};

}  // namespace shunt::daemon
