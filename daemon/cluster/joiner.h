// Joins across nodes: this node's own, seen through from coordinator to coordinator, and those of
// others that this node coordinates. All on the event loop's thread.
//
//   kTrying ──► kRegistered (here or at another node) ──map──► kPeers: all its nodes up ──► done
//      ▲                │
//      └── retry ◄──────┘  the coordinator is another one, or is lost
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/cluster/cluster.h"
#include "daemon/cluster/membership.h"
#include "daemon/cluster/peer_table.h"
#include "daemon/cluster/rendezvous_table.h"
#include "daemon/event_loop.h"

namespace shunt::cluster {

class Joiner {
 public:
  using RendezvousCall = IncomingPtr<v1::RendezvousRequest, v1::RendezvousResponse>;
  using WithdrawCall = IncomingPtr<v1::WithdrawRequest, v1::WithdrawResponse>;

  // All outlive it.
  Joiner(daemon::EventLoop* loop, const SelfInfo* self, PeerTable* peers, Membership* membership,
         std::function<LinkNumbers()> link);
  ~Joiner();

  void Join(uint64_t id, JoinAcrossRequest request, JoinAcrossDone done);
  void Withdraw(uint64_t id, std::string_view why);

  // From callers that were verified.
  void OnRendezvous(const RendezvousCall& call);
  void OnWithdraw(const WithdrawCall& call);

  // The view, or who of it can be reached, has changed.
  void Reevaluate();
  void PeerLost(std::string_view name, uint64_t incarnation, std::string_view why);
  // This node is another incarnation.
  void Renewed();
  // Ends all with UNAVAILABLE.
  void Stop();

  size_t joins_waiting() const { return joins_.size(); }
  size_t registrations_waiting() const { return table_.waiting(); }

 private:
  using Token = RendezvousTable::Token;
  enum class Stage { kTrying, kRegistered, kPeers };
  struct Entry {
    uint64_t id = 0;
    JoinAcrossRequest request;
    JoinAcrossDone done;
    Stage stage = Stage::kTrying;
    uint64_t attempt = 0;  // answers to earlier ones are not heard
    int64_t attempt_ns = 0;
    std::string coordinator;  // member id, while registered
    Token token = 0;          // if registered here; else the call is in flight on the
    uint64_t generation = 0;  // coordinator's channel of this generation
    std::string hint;         // who the last coordinator takes for the coordinator
    int tries = 0;
    int64_t trouble_since_ns = 0;
    absl::Status trouble;
    daemon::EventLoop::TimerId timer = 0;
    bool withdrawn = false;
    std::string reason;
    std::shared_ptr<const CommunicatorMap> map;
    std::set<size_t> nodes_missing;  // of the map, not up
    std::set<size_t> contacting;
    std::set<size_t> aggregators_missing;  // of the map: greeted, no answer yet
  };
  // A communicator that is complete here and is being opened on the aggregators, before its nodes
  // hear of it.
  struct Opening {
    RendezvousTable::Answers answers;  // of all its registrations
    bool asked = false;                // else waits for aggregators to come up
    struct Candidate {
      MappedNode node;
      std::optional<absl::Status> said;
    };
    std::vector<Candidate> candidates;
    daemon::EventLoop::TimerId timer = 0;  // of that wait
  };

  const MemberInfo* Coordinator(const RendezvousKey& key) const;
  void Try(Entry& join);
  void RegisterHere(Entry& join, Registration registration);
  void RegisterAt(Entry& join, const MemberInfo& member, const Registration& registration);
  void OnAnswer(uint64_t id, uint64_t attempt, const absl::Status& status,
                std::shared_ptr<const CommunicatorMap> map);
  void Trouble(Entry& join, const absl::Status& status);
  void BeginPeers(Entry& join, std::shared_ptr<const CommunicatorMap> map);
  void CheckPeers(uint64_t id);
  absl::Status CheckPeer(Entry& join, size_t node);
  void Finish(Entry& join, const absl::StatusOr<std::shared_ptr<const CommunicatorMap>>& result);
  void Deliver(const RendezvousTable::Answers& answers);
  void Reply(const RendezvousTable::Answer& answer);
  bool WantsAggregators(const RendezvousTable::Answer& answer) const;
  void BeginOpening(RendezvousTable::Answers answers);
  void AskAggregators(uint64_t wire_id);
  void CheckOpening(uint64_t wire_id);
  void FinishOpening(uint64_t wire_id);
  // Ends with CANCELLED the registrations that `pred` takes and, with them, all others of their
  // communicators, which register again. False if there is none.
  bool CancelOpenings(const std::function<bool(const RendezvousTable::Answer&)>& pred,
                      std::string_view why);
  bool WithdrawHere(Token token, std::string_view why);
  void WithdrawNode(std::string_view node, uint64_t incarnation, std::string_view why);
  void ContactAggregators(Entry& join);
  void ArmExpiry();
  void After(Entry& join, int64_t deadline_ns, void (Joiner::*then)(Entry&));
  void GiveUp(Entry& join);
  Entry* Find(uint64_t id);

  daemon::EventLoop* const loop_;
  const SelfInfo* const self_;
  PeerTable* const peers_;
  Membership* const membership_;
  const std::function<LinkNumbers()> link_;  // null: not measured
  RendezvousTable table_;
  std::map<uint64_t, Entry> joins_;
  Token next_token_ = 1;
  std::map<Token, std::function<void(const RendezvousTable::Answer&)>> replies_;
  std::map<uint64_t, Opening> openings_;  // by wire id
  daemon::EventLoop::TimerId expiry_ = 0;
  int64_t expiry_ns_ = 0;
};

}  // namespace shunt::cluster
