// What daemons ask one another about their agents: peer.proto's FetchSection and NotifyAgent.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shunt::cluster {

struct SectionQuery {
  uint32_t uid = 0;
  std::string agent;
  std::string section;  // "": only whether the agent is there
  bool read = false;
  bool write = false;
  // What the asker has of it; 0: nothing.
  uint64_t known_incarnation = 0;
  uint64_t known_version = 0;
};

struct SectionAnswer {
  enum class Kind {
    kWhole,      // `content` is the section's encoding (runtime/p2p/section_wire.h)
    kDelta,      // `content` makes it of what the asker has
    kUnchanged,  // the asker has it
    kNoSection,  // the agent is there; `content` says in words what it publishes
  };
  Kind kind = Kind::kNoSection;
  std::string content;
  uint64_t agent_incarnation = 0;
  uint64_t version = 0;
  bool read = false;
  bool write = false;
};

struct AgentNotice {
  uint32_t uid = 0;
  std::string agent;
  std::string from;  // as the receiver reads it: with "@node" when it has come
  std::string payload;
};

// A member that is not this node.
struct OtherNode {
  std::string name;
  bool up = false;
  uint64_t incarnation = 0;  // while it is up
  std::string why;           // while it is not
};

// The other nodes, to those who look for agents. On the loop's thread; the questions from any.
class AgentPeers {
 public:
  virtual ~AgentPeers() = default;

  // By name.
  virtual std::vector<OtherNode> OtherNodes() = 0;
  // 0: there is none by that name that is up.
  virtual uint64_t UpIncarnation(const std::string& node) = 0;
  // `done` is called once, later, on the loop: with the node's answer and the incarnation that gave
  // it, or with an error. Those of the node itself begin with its name; UNAVAILABLE and
  // DEADLINE_EXCEEDED: it gave no answer, whatever became of the question; NOT_FOUND without such a
  // beginning: it is no member. A node that is not up is called first.
  using SectionDone =
      std::function<void(const absl::StatusOr<SectionAnswer>& answer, uint64_t incarnation)>;
  virtual void FetchSection(const std::string& node, const SectionQuery& query,
                            std::chrono::nanoseconds timeout, SectionDone done) = 0;
  virtual void NotifyAgent(const std::string& node, const AgentNotice& notice,
                           std::chrono::nanoseconds timeout,
                           std::function<void(const absl::Status&)> done) = 0;
};

}  // namespace shunt::cluster
