// This node's part in the cluster: it knows the other nodes' daemons, is known to them, and brings
// the ranks of a communicator together across nodes.
//
//   JoinAcross ──► coordinator of (tenant, job, name), chosen by rendezvous hashing ──► all ranks
//   are
//                  there: one answer to each node ──► its peers are up ──► done(map)
//
// When every node knows its peers, a join costs the last rank's node one round trip.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/cluster/agents.h"
#include "daemon/cluster/config.h"
#include "daemon/cluster/membership.h"
#include "daemon/cluster/peer_table.h"
#include "daemon/cluster/rendezvous_table.h"
#include "daemon/cluster/view.h"
#include "daemon/event_loop.h"

namespace shunt::cluster {

struct JoinAcrossRequest {
  RendezvousKey key;
  JoinTerms terms;
  // Of this node, one or more; other ranks of the node may come with other requests.
  std::vector<RankInfo> ranks;
  int64_t deadline_ns = 0;   // CLOCK_MONOTONIC
  uint64_t known_epoch = 0;  // the highest epoch of this communicator that the node knows
};
// Every node of the map is up: Events::peer_up was called for it, with the same incarnation. Errors
// name node, rank and pid: those of RendezvousTable; UNAVAILABLE if the membership or a node cannot
// be reached; ALREADY_EXISTS if another daemon has this node's name.
using JoinAcrossDone =
    std::function<void(const absl::StatusOr<std::shared_ptr<const CommunicatorMap>>& map)>;

struct RankCall {
  int32_t rank = 0;
  int32_t pid = 0;
  std::string last_call;
  uint64_t collectives = 0;  // that it has called
};
using CallStatusDone = std::function<void(const absl::StatusOr<std::vector<RankCall>>&)>;

// Called on the loop's thread. They may call the cluster.
struct ClusterEvents {
  // The peer is about to learn the token that it presents on data connections to this node: it may
  // come before peer_up. An incarnation may be expected and never be up.
  std::function<void(const std::string& node, uint64_t incarnation, const std::string& token_in)>
      peer_expected;
  std::function<void(const PeerInfo& peer)> peer_up;
  // The same peer may be up again later, under this incarnation or a new one.
  std::function<void(const PeerInfo& peer, std::string_view why)> peer_lost;
  // The cluster has forgotten this node. All peers were lost before; it begins anew as this
  // incarnation.
  std::function<void(uint64_t incarnation, std::string_view why)> renewed;
  // What this node has measured of its way to the others.
  std::function<LinkNumbers()> link;
  // An aggregator's: makes it ready to add for a communicator, whose nodes are all up. Calls `done`
  // on the loop, once.
  std::function<void(const CommunicatorMap& map, std::function<void(absl::Status)> done)> open_span;
  // What this node's ranks of a communicator called last; NOT_FOUND if it knows none of this id.
  std::function<absl::StatusOr<std::vector<RankCall>>(uint64_t wire_id)> call_status;
  // What another node's daemon asks of this node's agents, for one of its users.
  std::function<absl::StatusOr<SectionAnswer>(const SectionQuery& query)> fetch_section;
  std::function<absl::Status(const AgentNotice& notice)> notify_agent;
};

// For status commands.
struct ClusterView {
  SelfInfo self;
  View view;
  absl::Status membership;  // OK, or why the view may be old
  std::vector<PeerTable::Row> peers;
  size_t joins_waiting = 0;          // of this node
  size_t registrations_waiting = 0;  // that this node coordinates
};

class Cluster : public AgentPeers {
 public:
  struct Options {
    ClusterConfig config;                     // enabled, checked
    std::vector<std::string> data_addresses;  // where the payload transport listens, for others
    std::string version;                      // of the software
    uint64_t incarnation = 0;                 // of this start; 0: a random number
    // For tests: instead of what config.membership says; other versions of the protocol.
    std::unique_ptr<Membership> membership;
    uint32_t protocol_min = 1;
    uint32_t protocol_max = 1;
  };

  // Listens when it returns; looks for the others from then on, whether their source can be reached
  // or not. `loop` runs and outlives it. UNAVAILABLE if it cannot listen, NOT_FOUND for a missing
  // TLS file. Not on the loop's thread.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(Options options, ClusterEvents events,
                                                        daemon::EventLoop* loop);
  // Leaves the cluster: peers and etcd know at once. Joins that wait end with UNAVAILABLE; no event
  // comes afterwards. Not on the loop's thread, which must be running.
  ~Cluster() override = default;

  // All of these: any thread; callbacks on the loop's. (AgentPeers says what is the loop's.)

  // `done` is called once, never before JoinAcross returns. The result names the join for Withdraw.
  virtual uint64_t JoinAcross(JoinAcrossRequest request, JoinAcrossDone done) = 0;
  // The join's ranks do not come after all ("its process ended"). `done` is still called: with
  // CANCELLED, or with the map if the last rank came first; the other nodes then count on this one.
  virtual void Withdraw(uint64_t join_id, std::string why) = 0;
  // Asks a peer what its ranks called last.
  virtual void CallStatus(const std::string& node, uint64_t wire_id,
                          std::chrono::nanoseconds timeout, CallStatusDone done) = 0;
  // The data connection to a peer is broken, which nobody noticed here: says hello again, so that
  // peer_lost and then peer_up come with other tokens.
  virtual void DataLost(const std::string& node, uint64_t incarnation, std::string why) = 0;
  // On the loop's thread: its peers, as in GetView.
  virtual std::vector<PeerTable::Row> PeersOnLoop() = 0;
  // Blocks for a turn of the loop; not on its thread.
  virtual ClusterView GetView() = 0;
  virtual uint16_t port() const = 0;
};

}  // namespace shunt::cluster
