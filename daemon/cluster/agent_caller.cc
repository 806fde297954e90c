#include "daemon/cluster/agent_caller.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/agent_messages.h"
#include "runtime/core/clock.h"

namespace shunt::cluster {
namespace {

// gRPC's own word on a deadline is better than the timer's.
constexpr auto kAnswerGrace = std::chrono::milliseconds(100);

absl::Status OfNode(const std::string& node, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("node '", node, "': ", status.message()));
}

}  // namespace

std::vector<OtherNode> AgentCaller::OtherNodes() const {
  std::vector<OtherNode> nodes;
  for (const PeerTable::Row& row : peers_->Rows()) {
    if (row.state == PeerTable::State::kSelf) continue;
    const bool up = row.state == PeerTable::State::kUp;
    nodes.push_back({row.member.id(), up, up ? row.member.incarnation : 0, row.why});
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const OtherNode& a, const OtherNode& b) { return a.name < b.name; });
  return nodes;
}

void AgentCaller::FetchSection(const std::string& node, const SectionQuery& query,
                               std::chrono::nanoseconds timeout, AgentPeers::SectionDone done) {
  v1::FetchPeerSectionRequest request;
  *request.mutable_caller() = Identity(*self_);
  ToProto(query, &request);
  Begin(
      node, timeout,
      [=, this](PeerClient* client, uint64_t incarnation, uint64_t question) mutable {
        request.set_incarnation(incarnation);
        client->FetchSection(request, timeout,
                             [=, this](const absl::StatusOr<v1::FetchPeerSectionResponse>& reply) {
                               if (!Take(question)) return;
                               auto answer = reply.ok() ? FromProto(*reply, query) : reply.status();
                               if (!answer.ok()) answer = OfNode(node, answer.status());
                               done(answer, incarnation);
                             });
      },
      [done](const absl::Status& status) { done(status, 0); });
}

void AgentCaller::NotifyAgent(const std::string& node, const AgentNotice& notice,
                              std::chrono::nanoseconds timeout,
                              std::function<void(const absl::Status&)> done) {
  v1::NotifyAgentRequest request;
  *request.mutable_caller() = Identity(*self_);
  ToProto(notice, &request);
  Begin(
      node, timeout,
      [=, this](PeerClient* client, uint64_t incarnation, uint64_t question) mutable {
        request.set_incarnation(incarnation);
        client->NotifyAgent(request, timeout,
                            [=, this](const absl::StatusOr<v1::NotifyAgentResponse>& reply) {
                              if (!Take(question)) return;
                              done(reply.ok() ? absl::OkStatus() : OfNode(node, reply.status()));
                            });
      },
      done);
}

void AgentCaller::Begin(const std::string& node, std::chrono::nanoseconds timeout, Ask ask,
                        Ended ended) {
  if (stopped_) return ended(absl::UnavailableError("shuntd is stopping"));
  const uint64_t id = next_++;
  Question& question = questions_[id];
  question = {node, std::move(ended)};
  question.timer = loop_->At(
      DeadlineAfterNs(timeout + kAnswerGrace), [this, id, alive = std::weak_ptr<char>(alive_)] {
        if (alive.lock() == nullptr) return;
        const auto it = questions_.find(id);
        if (it == questions_.end()) return;
        End(id, OfNode(it->second.node, absl::DeadlineExceededError("it did not answer in time")));
      });
  peers_->Contact(peers_->IdOf(node, ""),
                  [this, id, node, ask = std::move(ask),
                   alive = std::weak_ptr<char>(alive_)](const absl::Status& status) mutable {
                    if (alive.lock() == nullptr || !questions_.contains(id)) return;
                    if (!status.ok()) return End(id, status);
                    const PeerInfo* const peer = peers_->FindUp(node);
                    PeerClient* const client =
                        peer == nullptr ? nullptr : peers_->ClientOf(peers_->IdOf(node, ""));
                    if (client == nullptr) {
                      return End(id, OfNode(node, absl::UnavailableError("it is not connected")));
                    }
                    ask(client, peer->incarnation, id);
                  });
}

bool AgentCaller::Take(uint64_t question) {
  const auto it = questions_.find(question);
  if (it == questions_.end()) return false;
  loop_->Cancel(it->second.timer);
  questions_.erase(it);
  return true;
}

void AgentCaller::End(uint64_t question, const absl::Status& why) {
  const auto it = questions_.find(question);
  if (it == questions_.end()) return;
  const Ended ended = std::move(it->second.ended);
  Take(question);
  ended(why);
}

void AgentCaller::PeerLost(const std::string& node, std::string_view why) {
  const absl::Status status =
      OfNode(node, absl::UnavailableError(absl::StrCat("it was lost: ", std::string(why))));
  for (const auto& [id, question] : questions_) {
    if (question.node != node) continue;
    // Later: who hears of it may ask another node, and the table of peers is at work.
    loop_->Post([this, id = id, status, alive = std::weak_ptr<char>(alive_)] {
      if (alive.lock() != nullptr) End(id, status);
    });
  }
}

void AgentCaller::Stop() {
  stopped_ = true;
  while (!questions_.empty()) {
    End(questions_.begin()->first, absl::UnavailableError("shuntd is stopping"));
  }
}

}  // namespace shunt::cluster
