// Nodes without daemons: tables of agents that are asked through the messages between daemons.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/cluster/agent_messages.h"
#include "daemon/event_loop.h"
#include "daemon/transfer/remote_sections.h"

namespace shunt::daemon {

// Keys and values of `layers` layers in one region, `blocks` blocks of 32 KiB each.
inline p2p::Section Cache(const std::string& name, uint64_t layers, uint64_t blocks) {
  constexpr uint64_t kBytes = 32 << 10;
  p2p::Section section;
  section.name = name;
  section.regions = {{7, layers * 2 * blocks * kBytes}};
  for (uint64_t layer = 0; layer < layers; ++layer) {
    const auto half = static_cast<int64_t>(blocks * kBytes);
    section.sets.push_back(
        {7, layer * 2 * blocks * kBytes, kBytes, {{{1, 0}, {2, half}, {blocks, kBytes}}}});
  }
  return section;
}

struct FakeNode {
  AgentTable agents;
  uint64_t incarnation = 1;
  bool up = true;
  bool holds = false;  // its answers wait for Release
  std::vector<std::function<void()>> held;
  size_t asked = 0, notified = 0;
  v1::FetchPeerSectionResponse last;  // as it went over the wire
  // Instead of the table's answer.
  std::function<void(v1::FetchPeerSectionResponse*)> lie;

  uint64_t Register(const std::string& agent, uint64_t session = 1, uint32_t tenant = 0) {
    return *agents.Register({session, tenant}, agent);
  }
  void Publish(p2p::Section section, uint64_t session = 1, Grant grant = {}, p2p::Space space = 0) {
    agents.Publish(session, std::move(section), space, std::move(grant)).value();
  }
};

// This node is "a".
class AgentsWorld : public cluster::AgentPeers {
 public:
  AgentsWorld() : loop_(*EventLoop::Make()), thread_([this] { loop_->Run(); }) {
    sections = std::make_unique<RemoteSections>(loop_.get(), "a");
    OnLoop([this] { sections->SetPeers(this); });
  }
  ~AgentsWorld() override {
    OnLoop([this] { sections->SetPeers(nullptr); });
    loop_->Stop();
    thread_.join();
  }

  FakeNode& operator[](const std::string& name) { return nodes_[name]; }

  using Result = absl::StatusOr<std::shared_ptr<const Published>>;
  std::future<Result> Begin(const std::string& agent, const std::string& section = "kv",
                            bool write = false, uint32_t tenant = 0) {
    auto promise = std::make_shared<std::promise<Result>>();
    sections->Fetch({tenant, ParseAgent(agent), section, !write, write},
                    [promise](const Result& result) { promise->set_value(result); });
    return promise->get_future();
  }
  template <typename... Args>
  Result Fetch(Args... args) {
    return Begin(args...).get();
  }
  absl::Status Notify(const std::string& agent, const std::string& payload) {
    std::promise<absl::Status> promise;
    const AgentAddress address = ParseAgent(agent);
    sections->Notify(address, {0, address.agent, "me", payload},
                     [&](const absl::Status& status) { promise.set_value(status); });
    return promise.get_future().get();
  }

  void Release(const std::string& node) {
    OnLoop([&] {
      for (const auto& answer : std::exchange(nodes_[node].held, {})) answer();
    });
  }
  // What was asked before has been asked.
  void Settle() {
    for (int i = 0; i < 4; ++i) OnLoop([] {});
  }
  void OnLoop(const std::function<void()>& f) {
    std::promise<void> done;
    loop_->Post([&] {
      f();
      done.set_value();
    });
    done.get_future().get();
  }

  std::unique_ptr<RemoteSections> sections;

  // AgentPeers
  std::vector<cluster::OtherNode> OtherNodes() override {
    std::vector<cluster::OtherNode> others;
    for (const auto& [name, node] : nodes_) {
      others.push_back(
          {name, node.up, node.incarnation, node.up ? "" : "node '" + name + "' is down"});
    }
    return others;
  }
  uint64_t UpIncarnation(const std::string& name) override {
    const auto node = nodes_.find(name);
    return node != nodes_.end() && node->second.up ? node->second.incarnation : 0;
  }
  void FetchSection(const std::string& name, const cluster::SectionQuery& query,
                    std::chrono::nanoseconds, SectionDone done) override {
    Ask(name, [this, name, query, done](FakeNode* node) {
      if (node == nullptr) return done(Gone(name), 0);
      ++node->asked;
      v1::FetchPeerSectionRequest request;
      ToProto(query, &request);
      v1::FetchPeerSectionResponse response;
      const auto read = cluster::FromProto(request);
      absl::Status status = read.status();
      if (read.ok()) {
        auto answer = node->agents.Answer(*read);
        status = answer.status();
        if (answer.ok()) ToProto(*std::move(answer), &response);
      }
      if (node->lie) node->lie(&response), status = absl::OkStatus();
      node->last = response;
      if (!status.ok()) return done(status, node->incarnation);
      done(cluster::FromProto(response, query), node->incarnation);
    });
  }
  void NotifyAgent(const std::string& name, const cluster::AgentNotice& notice,
                   std::chrono::nanoseconds,
                   std::function<void(const absl::Status&)> done) override {
    Ask(name, [name, notice, done](FakeNode* node) {
      if (node == nullptr) return done(Gone(name));
      ++node->notified;
      v1::NotifyAgentRequest request;
      ToProto(notice, &request);
      const auto read = cluster::FromProto(request, "a");
      done(read.ok() ? node->agents.Deliver(*read) : read.status());
    });
  }

 private:
  static absl::Status Gone(const std::string& name) {
    return absl::UnavailableError("node '" + name + "' is gone");
  }
  void Ask(const std::string& name, std::function<void(FakeNode*)> then) {
    loop_->Post([this, name, then = std::move(then)] {
      const auto found = nodes_.find(name);
      FakeNode* const node = found == nodes_.end() || !found->second.up ? nullptr : &found->second;
      if (node == nullptr || !node->holds) return then(node);
      node->held.push_back([node, then] { then(node); });
    });
  }

  std::unique_ptr<EventLoop> loop_;
  std::map<std::string, FakeNode> nodes_;
  std::thread thread_;
};

}  // namespace shunt::daemon
