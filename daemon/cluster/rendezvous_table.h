// The coordinator's part of joining a communicator across nodes: who has registered for it, and,
// when all ranks are there, the map that every node gets. A passive state machine: no clock, no
// thread, no calls out. Each change gives back the answers that are due because of it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/exchange/link_numbers.h"

namespace shunt::cluster {

// Names a communicator in the cluster: a tenant's user id means the same on every node.
struct RendezvousKey {
  uint32_t uid = 0;
  std::string job;
  std::string name;
  auto operator<=>(const RendezvousKey&) const = default;
};
// What the coordinator is chosen by.
std::string HashKey(const RendezvousKey& key);
// "communicator 'x' of job 'y'".
std::string Words(const RendezvousKey& key);

struct RankInfo {
  int32_t rank = 0;
  int32_t pid = 0;      // as its node's daemon sees it; 0 if it can't
  std::string session;  // its session's name
  bool operator==(const RankInfo&) const = default;
};

// What all ranks of a communicator must join with alike.
struct JoinTerms {
  int32_t world_size = 0;
  std::string algorithm;  // "": the fastest
  bool deterministic = false;
  bool device = false;  // buffers may be GPU memory
  bool operator==(const JoinTerms&) const = default;
};
// The first term in which the two differ, as the first has it: "world size 4".
std::string DifferingTerm(const JoinTerms& terms, const JoinTerms& other);

using exchange::LinkNumbers;

struct Registration {
  std::string node;
  uint64_t incarnation = 0;
  std::string address;  // of the node's control plane
  uint64_t id = 0;  // the node's own: a repeated call has the same and takes the first one's place
  std::vector<RankInfo> ranks;
  JoinTerms terms;
  int64_t deadline_ns = 0;
  uint64_t known_epoch = 0;  // the highest that the node knows of this communicator
  LinkNumbers link;          // of the node
};

struct MappedNode {
  std::string name;
  uint64_t incarnation = 0;
  std::string address;  // of its control plane
  bool operator==(const MappedNode&) const = default;
};

struct MappedRank {
  int32_t node = 0;  // in CommunicatorMap::nodes
  int32_t pid = 0;
  std::string session;
  bool operator==(const MappedRank&) const = default;
};

inline constexpr int kAggregatorsMax = 64;  // of one communicator

struct CommunicatorMap {
  uint64_t wire_id = 0;  // random, never 0: names this epoch on the wire
  uint64_t epoch = 0;    // counts the joins of this name
  bool warm = false;     // the coordinator, or one of the nodes, knew it from an earlier join
  std::vector<MappedNode> nodes;        // by their lowest ranks
  std::vector<MappedRank> ranks;        // in rank order
  LinkNumbers link;                     // the worst of the nodes
  std::vector<MappedNode> aggregators;  // ready to add for it; they have no ranks
  bool operator==(const CommunicatorMap&) const = default;
};

class RendezvousTable {
 public:
  struct Limits {
    int32_t world_size_max = 1 << 20;
    size_t waiting_per_node_max = 65536;  // registrations
    size_t records_max = 65536;           // of communicators that nobody waits for
  };
  // Names a registration here; never used twice.
  using Token = uint64_t;
  struct Answer {
    Token token = 0;
    absl::Status status;
    std::shared_ptr<const CommunicatorMap> map;  // set if the status is OK
    RendezvousKey key = {};                      // the same
    // The same: what was registered, which the table has no more.
    std::shared_ptr<const Registration> registration = {};
  };
  using Answers = std::vector<Answer>;

  // `random` gives 64 random bits.
  RendezvousTable(Limits limits, std::function<uint64_t()> random);
  ~RendezvousTable();

  // Answers for `token` at once if the registration is wrong (INVALID_ARGUMENT, FAILED_PRECONDITION
  // for another world size than the others', ALREADY_EXISTS for a rank that is taken,
  // RESOURCE_EXHAUSTED), and for everybody if it was the last.
  Answers Register(Token token, const RendezvousKey& key, Registration registration);

  // Ends a registration that waits with CANCELLED. `why` is remembered for those who miss its
  // ranks: "its process ended". Nothing if it waits no more.
  Answers Withdraw(Token token, std::string_view why);
  // Remembers the same of a registration that completed its communicator after all: those who are
  // told that there is none register again.
  void NoteGone(const RendezvousKey& key, const Registration& registration, std::string_view why);
  // All registrations of a node's incarnation, or of all its incarnations for 0.
  Answers WithdrawNode(std::string_view node, uint64_t incarnation, std::string_view why);
  // Ends those whose deadline is at or before `now_ns` with DEADLINE_EXCEEDED, naming the missing.
  Answers Expire(int64_t now_ns);
  // Ends all registrations for the communicators that `pred` takes, with `status`.
  Answers EndIf(const std::function<bool(const RendezvousKey&)>& pred, const absl::Status& status);

  // The next moment for Expire; kNeverNs if nobody waits.
  int64_t next_deadline_ns() const;
  size_t waiting() const { return keys_.size(); }
  // The token under which this registration waits; 0 if it does not.
  Token Find(std::string_view node, uint64_t incarnation, uint64_t id) const;

 private:
  struct Waiting;
  struct Record;
  using Records = std::map<RendezvousKey, Record>;

  absl::Status Check(const RendezvousKey& key, const Registration& registration) const;
  absl::Status Admit(const Waiting& waiting, const RendezvousKey& key,
                     const Registration& registration) const;
  Answers WithdrawWhere(std::string_view node, const std::function<bool(uint64_t)>& incarnation,
                        std::string_view why);
  void Remove(Token token, std::string_view why);
  void Complete(Records::iterator record, Answers* answers);
  std::string Missing(const Waiting& waiting) const;
  void Settle(Records::iterator record);

  const Limits limits_;
  const std::function<uint64_t()> random_;
  Records records_;
  std::map<Token, RendezvousKey> keys_;  // of those that wait
  std::map<std::pair<int64_t, Token>, bool> deadlines_;
  // By node: (incarnation, registration id) → token.
  std::map<std::string, std::map<std::pair<uint64_t, uint64_t>, Token>, std::less<>> of_node_;
  std::list<RendezvousKey> idle_;  // records that nobody waits for, the longest idle first
};

}  // namespace shunt::cluster
