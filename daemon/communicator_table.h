// Where ranks meet: joins that wait for each other, communicators that are joined, and records of
// those that are not any more (warm: a restarted job finds its epoch count and rank map).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/cluster/rendezvous_table.h"
#include "daemon/communicator.h"
#include "daemon/event_loop.h"
#include "daemon/session.h"

namespace shunt::daemon {

struct JoinRequestArgs {
  std::string name;
  std::string job;
  int32_t rank = 0;
  cluster::JoinTerms terms;
  int64_t deadline_ns = 0;
  bool daemon_posts = false;
};

struct Joined {
  std::shared_ptr<Communicator> communicator;
  bool warm = false;
};
// Called exactly once, on any thread, without locks held.
using JoinDone = std::function<void(const absl::StatusOr<Joined>&)>;

// What `shuntctl communicators` shows.
struct CommunicatorView {
  CommunicatorKey key;
  uint64_t id = 0;
  uint64_t epoch = 0;
  int world = 0;
  std::string state;
  std::string failure;
  int64_t waits_since_ns = 0;  // "joining": when the first of its ranks asked
  struct Rank {
    int rank;
    int32_t pid;
    uint64_t session_id;
    std::string last_call;
  };
  std::vector<Rank> ranks;
};

// Thread-safe.
class CommunicatorTable {
 public:
  struct Limits {
    int64_t communicators_per_session = 1024;
    int64_t warm_records = 256;
    int64_t warm_ttl_ns = 0;
  };
  CommunicatorTable(Limits limits, OperationHost* host);
  // For what comes from now on: nobody has to leave.
  void SetLimits(const Limits& limits);
  ~CommunicatorTable();

  // Joins when all ranks have come. Errors as proto/shunt/v1/communicator.proto says. The result
  // names the join for Withdraw; 0 if `done` has been called already.
  uint64_t Join(const std::shared_ptr<Session>& session, const JoinRequestArgs& args,
                JoinDone done);
  // Ends a join that still waits, with CANCELLED. False if it waits no more.
  bool Withdraw(uint64_t join_id);

  // FAILED_PRECONDITION-free: NOT_FOUND if the session is no member.
  absl::Status Leave(Session& session, uint64_t communicator_id);
  // The session has ended: its joins are withdrawn, its memberships end.
  void SessionGone(Session& session, bool died);

  // The daemon stops: ends every join that waits with UNAVAILABLE; fails every communicator.
  void WithdrawAll(std::string_view reason);
  void FailAll(std::string_view reason);

  std::vector<CommunicatorView> View() const;
  // What this node's ranks called last; NOT_FOUND if there is no communicator of that number
  // between the nodes.
  absl::StatusOr<std::vector<cluster::RankCall>> CallStatus(uint64_t wire_id) const;
  std::vector<std::shared_ptr<Communicator>> List() const;
  size_t size() const;

 private:
  struct Participant {
    uint64_t join_id = 0;
    int64_t asked_ns = 0;
    std::shared_ptr<Session> session;
    bool daemon_posts = false;
    EventLoop::TimerId timer = 0;
    uint64_t across = 0;  // its join at the cluster, 0 if none
    JoinDone done;
  };
  struct Joining {
    cluster::JoinTerms terms;
    std::unordered_map<int, Participant> ranks;
    std::set<int> gave_up;               // had joined, until their deadlines
    std::shared_ptr<Communicator> next;  // null if the world cannot be on this node alone
  };
  struct Record {
    uint64_t epochs = 0;
    int last_world = 0;
    std::unique_ptr<Joining> joining;
    std::shared_ptr<Communicator> current;
    std::list<CommunicatorKey>::iterator idle;  // in idle_, valid if `is_idle`
    bool is_idle = false;
    int64_t idle_since_ns = 0;
  };
  using Records = absl::node_hash_map<CommunicatorKey, Record>;
  using Completions = std::vector<std::pair<JoinDone, absl::StatusOr<Joined>>>;

  absl::Status Check(const Session& session, const JoinRequestArgs& args) const;
  absl::Status AdmitLocked(const std::shared_ptr<Session>& session, const JoinRequestArgs& args,
                           const CommunicatorKey& key, Record& record);
  void FinishLocked(const CommunicatorKey& key, Record& record, Completions* completions);
  // The cluster's answer to a join of this node.
  void JoinedAcross(uint64_t join_id,
                    const absl::StatusOr<std::shared_ptr<const cluster::CommunicatorMap>>& map);
  // Makes the communicator that spans the map's nodes; all of this node's ranks wait in the record.
  absl::Status FinishAcrossLocked(const CommunicatorKey& key, Record& record,
                                  const cluster::CommunicatorMap& map, Completions* completions);
  void HandOutLocked(const CommunicatorKey& key, Record& record,
                     const std::shared_ptr<Communicator>& communicator, bool warm,
                     std::unordered_map<int, Participant> ranks, Completions* completions);
  // Takes a participant out; its completion is the caller's.
  bool RemoveLocked(uint64_t join_id, Participant* removed, std::string* missing);
  void Expire(uint64_t join_id);
  void Settle(const CommunicatorKey& key, Record& record);  // idle, or gone
  void DropMembership(Session& session, const Membership& membership, bool died);
  // Drops records beyond the limits of their number and age.
  void ForgetSurplusLocked();
  void ExpireIdleLocked();
  std::string MissingRanks(const Joining& joining) const;

  Limits limits_;  // mutex_
  OperationHost* const host_;
  mutable std::mutex mutex_;
  uint64_t next_communicator_id_ = 1;
  uint64_t next_join_id_ = 1;
  Records records_;
  std::unordered_map<uint64_t, std::pair<CommunicatorKey, int>>
      joins_;  // by join id: where it waits
  std::unordered_map<uint64_t, int64_t> joins_of_session_;
  std::unordered_map<uint64_t, std::shared_ptr<Communicator>> by_id_;
  std::list<CommunicatorKey> idle_;  // longest idle first
  EventLoop::TimerId idle_timer_ = 0;
  uint64_t idle_turn_ = 0;  // of idle_timer_: one that was cancelled may be on its way yet
};

}  // namespace shunt::daemon
