// Who offers what for transfers on this node: agents, the sections that they publish, and what has
// come for them.
//
//   session ── agent "prefill" ──┬── section "kv", version 3 ──► Published (immutable)
//                                └── inbox: notifications, in order, each taken once
//
// A change makes another Published; whoever fetched the one before holds it and is told so.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/cluster/agents.h"
#include "daemon/transfer/section_history.h"
#include "runtime/core/fd.h"
#include "runtime/memory/region_table.h"
#include "runtime/p2p/prepared_list.h"

namespace shunt::daemon {

// INVALID_ARGUMENT, in words.
absl::Status CheckAgentName(const std::string& name);

struct Grant {
  bool read = true;
  bool write = true;
  std::vector<uint32_t> tenants;  // beside the owner's own
};

struct Notification {
  std::string from;
  std::string payload;
};

// What has come for one agent. Thread-safe.
class Inbox {
 public:
  static constexpr size_t kWaitingMax = 1024;
  static constexpr size_t kPayloadBytesMax = 1024;

  // Keeps room for one more: RESOURCE_EXHAUSTED, or NOT_FOUND if the agent has ended. Each is
  // followed by Put or GiveBack.
  absl::Status Reserve(const std::string& agent);
  void GiveBack();
  void Put(Notification notification);

  // The oldest, `max` at most; `more`: others are left.
  std::vector<Notification> Take(size_t max, bool* more);
  // Calls `ready` once: when there is something, perhaps at once, or when the agent ends. Takes the
  // place of an earlier one, which is called too.
  void WhenSome(std::function<void()> ready);
  // Signalled for each that comes, and once if something is there.
  void SetEvent(UniqueFd event);
  void End();

 private:
  std::mutex mutex_;
  std::deque<Notification> waiting_;
  size_t reserved_ = 0;
  bool ended_ = false;
  std::function<void()> ready_;
  UniqueFd event_;
};

// One version of a section.
struct Published {
  memory::Owner owner;
  std::string agent;
  Grant grant;
  std::shared_ptr<const p2p::PreparedList> list;
  std::shared_ptr<Inbox> inbox;  // the agent's; null: it is on another node
  // Where the agent is, in which life of its daemon; empty: here. Of another node's section
  // `owner.session` is 0, and its daemon checks anew whether it is current when it is used.
  std::string node;
  uint64_t node_incarnation = 0;

  const std::string& section() const { return list->section().name; }
  uint64_t incarnation() const { return list->section().incarnation; }
  uint64_t version() const { return list->section().version; }
  // FAILED_PRECONDITION, in words, if it has been replaced or withdrawn, or its agent has ended.
  absl::Status CheckCurrent() const;
  // PERMISSION_DENIED, in words.
  absl::Status CheckAccess(uint32_t tenant, bool write) const;
  // UNIMPLEMENTED, in words for another node, if it is of what this one's agents alone can reach:
  // files, objects, GPU memory.
  absl::Status CheckElsewhere() const;

  // 0: it is what the agent publishes now; else the version that took its place, or one of these.
  std::atomic<uint64_t> replaced_by = 0;
  static constexpr uint64_t kWithdrawn = UINT64_MAX;
  static constexpr uint64_t kAgentEnded = UINT64_MAX - 1;
  // Another node has it: the version after it is worth a delta.
  std::atomic<bool> fetched_elsewhere = false;
};

// Thread-safe.
class AgentTable {
 public:
  struct Agent {
    memory::Owner owner;
    std::string name;
    uint64_t incarnation = 0;
    std::shared_ptr<Inbox> inbox = std::make_shared<Inbox>();
    std::map<std::string, std::shared_ptr<Published>> sections;
    std::map<std::string, uint64_t> versions;  // the last of each name
    uint64_t forgotten_version = 0;            // the highest of names that are there no more
    SectionHistory history;
  };

  // Its incarnation. INVALID_ARGUMENT for a name that can't be; ALREADY_EXISTS.
  absl::StatusOr<uint64_t> Register(memory::Owner owner, const std::string& name);
  // `section` has name, regions and sets, in `space`; what else it has is filled in here.
  absl::StatusOr<std::shared_ptr<const Published>> Publish(uint64_t session, p2p::Section section,
                                                           p2p::Space space, Grant grant);
  absl::Status Withdraw(uint64_t session, const std::string& section);
  // Its agent ends.
  void SessionGone(uint64_t session);

  // NOT_FOUND also if `tenant` has no grant; PERMISSION_DENIED if it has another. `has_agent`, if
  // not null: the agent is here, whatever became of its section.
  absl::StatusOr<std::shared_ptr<const Published>> Find(uint32_t tenant, const std::string& agent,
                                                        const std::string& section, bool write,
                                                        bool* has_agent = nullptr) const;
  // Of the same tenant, or of one that grants it a section.
  absl::StatusOr<std::shared_ptr<Inbox>> FindInbox(uint32_t tenant, const std::string& agent) const;
  // Of the session's own agent. FAILED_PRECONDITION if it is none.
  absl::StatusOr<std::shared_ptr<Inbox>> OwnInbox(uint64_t session) const;
  // Empty if the session is no agent.
  std::string NameOf(uint64_t session) const;

  size_t size() const;

  // agent_table_peers.cc
  // What another node's daemon asks. NOT_FOUND: there is no such agent.
  absl::StatusOr<cluster::SectionAnswer> Answer(const cluster::SectionQuery& query);
  // Puts it into the agent's inbox, wherever it comes from. Errors of FindInbox and Reserve.
  // `has_agent` as in Find.
  absl::Status Deliver(const cluster::AgentNotice& notice, bool* has_agent = nullptr);

 private:
  static absl::Status NoAgent(uint32_t tenant, const std::string& agent);
  static absl::Status NoSection(const Agent& agent, const std::string& section);

  // mutex_ held. Its versions go on from there if it comes back.
  static void ForgetVersions(Agent& agent, const std::string& section);
  // mutex_ held. Own tenant's first; null if there is none that `tenant` may know of.
  const Agent* FindLocked(uint32_t tenant, const std::string& agent,
                          const std::string* section) const;

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<Agent>> by_session_;
  std::multimap<std::string, Agent*> by_name_;
};

}  // namespace shunt::daemon
