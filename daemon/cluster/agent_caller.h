// Asks other daemons about their agents, and what they have recorded. Every question ends: with an
// answer, with the loss of the peer, or in time. On the event loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/cluster/agents.h"
#include "daemon/cluster/cluster.h"
#include "daemon/cluster/peer_table.h"
#include "daemon/event_loop.h"
#include "runtime/recorder/lateness.h"

namespace shunt::cluster {

class AgentCaller {
 public:
  // All outlive it.
  AgentCaller(daemon::EventLoop* loop, const SelfInfo* self, PeerTable* peers)
      : loop_(loop), self_(self), peers_(peers) {}
  ~AgentCaller() { Stop(); }

  // As AgentPeers says.
  std::vector<OtherNode> OtherNodes() const;
  void FetchSection(const std::string& node, const SectionQuery& query,
                    std::chrono::nanoseconds timeout, AgentPeers::SectionDone done);
  void NotifyAgent(const std::string& node, const AgentNotice& notice,
                   std::chrono::nanoseconds timeout, std::function<void(const absl::Status&)> done);

  // As Cluster says. records_caller.cc
  void AskRecords(const std::string& node, const Cluster::RecordsQuery& query,
                  std::chrono::nanoseconds timeout, Cluster::RecordsDone done);

  void PeerLost(const std::string& node, std::string_view why);
  // Ends all with UNAVAILABLE, and so all that come later.
  void Stop();

 private:
  using Ended = std::function<void(const absl::Status&)>;
  struct Question {
    std::string node;
    Ended ended;  // without an answer
    daemon::EventLoop::TimerId timer = 0;
  };
  using Ask = std::function<void(PeerClient* client, uint64_t incarnation, uint64_t question)>;

  struct RecordsQuestion;
  // The next question of one's clock, or, after the last of these, of its records.
  void AskOn(std::shared_ptr<RecordsQuestion> asked);

  // Calls `ask` when the node is up; `ended` once if it comes to nothing.
  void Begin(const std::string& node, std::chrono::nanoseconds timeout, Ask ask, Ended ended);
  // False if the question has ended before. After it `ended` is not called any more.
  bool Take(uint64_t question);
  void End(uint64_t question, const absl::Status& why);

  daemon::EventLoop* const loop_;
  const SelfInfo* const self_;
  PeerTable* const peers_;
  bool stopped_ = false;
  uint64_t next_ = 1;
  std::map<uint64_t, Question> questions_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace shunt::cluster
