// What the exchange thread keeps, for the engine's own files.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/node_engine.h"
#include "runtime/exchange/policy_switch.h"

namespace shunt::daemon {

// Stands for this node in lists of peers.
inline constexpr transport::PeerId kSelf = ~0u;

struct NodeEngine::PeerState {
  NodeKey node;
  std::optional<transport::TcpPeer> info;  // none: spoken of, but not met yet
  std::string gone;                        // why it was forgotten
};

struct NodeEngine::SpanState {
  Span span;
  std::vector<transport::PeerId> peers;  // by node
  bool failed = false;
  struct Known {
    uint32_t channel;
    uint64_t sequence;
    transport::Signature signature;
    std::string words;
  };
  std::optional<exchange::PolicySwitch> policies;
  uint64_t begun = 0;        // the highest sequence of channel 0
  std::optional<Call> held;  // of channel 0: waits for a decision on the policy
  int64_t proposed_ns = 0;
  std::deque<Known> known;  // the last operations that were begun here
  struct Stray {
    transport::PeerId peer;
    uint32_t channel;
    uint64_t sequence;
    transport::Signature signature;
  };
  absl::flat_hash_map<int, exchange::LeftNote> left;  // by rank; of other nodes
  std::vector<Stray> strays;                          // of operations that this node has not begun

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
  exchange::NodeMap pair_map;
  std::vector<transport::PeerId> pair_peers;
  std::unique_ptr<exchange::PairTable> pairs;
  std::unique_ptr<exchange::Exchange> data, agreement;
  bool doomed = false;
  int64_t began_ns = 0;
  NetSpec net;
  LinkModel model;
};

}  // namespace shunt::daemon
