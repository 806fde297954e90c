// Agents of other nodes: finds them, fetches what they publish, brings them notifications.
//
//   "agent@node" ──► that node
//   "agent" ──► where it was found last ──not there──► all nodes that are up, at once: the first
//               by name that has the agent is meant, whichever answers first
//
// What arrives is checked and kept, so that fetching it again costs what has changed since.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/cluster/agents.h"
#include "daemon/event_loop.h"
#include "daemon/transfer/agent_search.h"
#include "daemon/transfer/agent_table.h"
#include "daemon/transfer/section_cache.h"

namespace shunt::daemon {

// "agent" or "agent@node" as requests have it.
struct AgentAddress {
  std::string agent;
  std::string node;  // with has_node
  bool has_node = false;
};
AgentAddress ParseAgent(const std::string& text);

class RemoteSections {
 public:
  // `loop` outlives it, and no longer runs when it goes. `self`: this node's name; empty: in no
  // cluster.
  RemoteSections(EventLoop* loop, std::string self) : loop_(loop), self_(std::move(self)) {}

  // From now on. Null: everything under way ends with UNAVAILABLE, and so does what comes. On the
  // loop.
  void SetPeers(cluster::AgentPeers* peers);

  bool in_cluster() const { return !self_.empty(); }
  // True if it names this node, or none: this node's table is asked first, or alone.
  bool IsHere(const AgentAddress& address) const {
    return !address.has_node || (in_cluster() && address.node == self_);
  }

  struct Wanted {
    uint32_t tenant = 0;
    AgentAddress address;
    std::string section;
    bool read = false;
    bool write = false;
  };
  using Fetched = std::function<void(const absl::StatusOr<std::shared_ptr<const Published>>&)>;
  using Told = std::function<void(const absl::Status&)>;
  // Any thread; `done` is called once, on the loop. NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE,
  // DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, in words that name agent and node.
  void Fetch(Wanted wanted, Fetched done);
  void Notify(AgentAddress address, cluster::AgentNotice notice, Told done);

 private:
  // One call of a session. What it waits for holds it, and finds it over when it has been ended.
  struct Operation {
    cluster::SectionQuery query;
    AgentAddress address;
    Told failed;
    bool over = false;
  };
  using OperationPtr = std::shared_ptr<Operation>;
  using Found = std::function<void(const std::string& node, const NodeAnswer& answer)>;

  // False if it has failed at once.
  bool Begin(const OperationPtr& op);
  // Ends it: false if that has happened before.
  bool End(const OperationPtr& op);
  void Fail(const OperationPtr& op, const absl::Status& why);

  // Empty: nobody knows, or the node is not up.
  std::string Remembered(const Operation& op) const;
  void Search(const OperationPtr& op, Found found);
  // `anew`: as if nothing of it were here.
  void Ask(const OperationPtr& op, const std::string& node, bool anew,
           std::function<void(NodeAnswer)> then);
  SectionCache::Key KeyOf(const Operation& op, const std::string& node) const;
  void Take(const OperationPtr& op, const std::string& node, const NodeAnswer& answer, bool anew,
            const Fetched& done);
  absl::StatusOr<std::shared_ptr<const Published>> Make(const Operation& op,
                                                        const std::string& node,
                                                        const NodeAnswer& answer);
  void Tell(const OperationPtr& op, const std::string& node, bool may_search,
            const cluster::AgentNotice& notice, const Told& done);

  EventLoop* const loop_;
  const std::string self_;

  // The loop's.
  cluster::AgentPeers* peers_ = nullptr;
  std::set<OperationPtr> operations_;
  std::map<uint32_t, size_t> of_tenant_;
  std::map<std::pair<uint32_t, std::string>, std::string> located_;  // agents → node
  SectionCache cache_;
};

}  // namespace shunt::daemon
