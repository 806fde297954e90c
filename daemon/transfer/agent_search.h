// Which node has an agent: all are asked at once, and the first by name that has it is meant,
// whichever answers first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/cluster/agents.h"
#include "daemon/transfer/agent_table.h"

namespace shunt::daemon {

struct NodeAnswer {
  absl::StatusOr<cluster::SectionAnswer> answer = absl::UnknownError("");
  uint64_t incarnation = 0;                // of the node
  std::shared_ptr<const Published> known;  // what the node was told to be here
  bool has_agent() const { return answer.ok() || absl::IsPermissionDenied(answer.status()); }
};

// On the loop's thread.
class AgentSearch : public std::enable_shared_from_this<AgentSearch> {
 public:
  using Ask = std::function<void(const std::string& node, std::function<void(NodeAnswer)> then)>;
  // With the node that has it, or with NOT_FOUND: how many were asked, who gave no answer, and who
  // is not up.
  using Done = std::function<void(const std::string& node, const NodeAnswer& answer)>;

  // `agent` is for words. Calls `done` once.
  static void Run(const std::string& agent, const std::vector<cluster::OtherNode>& nodes,
                  const Ask& ask, Done done);

 private:
  void Advance();
  absl::Status Nowhere() const;

  std::string agent_;
  std::vector<std::string> asked_;
  std::vector<std::optional<NodeAnswer>> answers_;
  std::vector<std::string> absent_;  // in words
  size_t next_ = 0;                  // the agent is not at those before it
  Done done_;
};

}  // namespace shunt::daemon
