// Nodes with transports that are connected to one another, for the conformance suite: one class for
// each carrier, all with the same functions. Node j is the peer j of every other node.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/transport/fake/network.h"
#include "runtime/transport/transport.h"

namespace shunt::transport::testing {

using Log = std::vector<Completion>;

class World {
 public:
  virtual ~World() = default;
  virtual Transport& at(int node) = 0;
  // Lets something happen; false if nothing ever will.
  virtual bool Pump() = 0;
  // The same without waiting.
  virtual void Nudge() {}
  // Messages move between Polls too, so one that has begun may have ended by the next.
  virtual bool moves_alone() const { return false; }
  // The node dies, and its peers see it soon.
  virtual void Kill(int node) = 0;

  int nodes() const { return static_cast<int>(logs_.size()); }
  Log& log(int node) { return logs_[node]; }

  // Polls all nodes but the quiet ones until `done`; false if that will never be.
  bool Until(const std::function<bool()>& done) {
    const int64_t deadline_ns = NowNs() + 20'000'000'000;  // heartbeats never end
    for (;;) {
      const bool moved = PollAll();
      if (done()) return true;
      if ((!moved && !Pump()) || NowNs() > deadline_ns) return false;
    }
  }
  // The same, looking as often as it can: one Poll of each node in between. False if a peer is
  // lost.
  bool UntilSome(const std::function<bool()>& done) {
    const int64_t deadline_ns = NowNs() + 20'000'000'000;
    while (!done()) {
      for (int node = 0; node < nodes(); ++node) {
        Completion one;
        if (at(node).Poll(absl::MakeSpan(&one, 1)) == 0) continue;
        UNSCOPED_INFO("node " << node << ": " << one.text);
        if (one.event == Event::kPeerLost) return false;
        logs_[node].push_back(std::move(one));
      }
      if (done()) break;
      if (!Pump() || NowNs() > deadline_ns) return false;
    }
    return true;
  }
  // Until nothing moves any more (a carrier of real time: for some time).
  virtual void Settle() {
    while (PollAll() || Pump()) {
    }
  }
  void SetQuiet(int node, bool quiet) { quiet_[node] = quiet; }
  bool quiet(int node) const { return quiet_[node]; }

  // The completion of a token, or null.
  const Completion* Find(int node, Event event, uint64_t token) const {
    for (const Completion& c : logs_[node]) {
      if (c.event == event && c.token == token) return &c;
    }
    return nullptr;
  }
  int Count(int node, Event event) const {
    return static_cast<int>(std::count_if(logs_[node].begin(), logs_[node].end(),
                                          [&](const Completion& c) { return c.event == event; }));
  }
  bool Wait(int node, Event event, uint64_t token) {
    return Until([&] { return Find(node, event, token) != nullptr; });
  }
  bool WaitCount(int node, Event event, int count) {
    return Until([&] { return Count(node, event) >= count; });
  }
  absl::StatusCode Code(int node, Event event, uint64_t token) {
    if (!Wait(node, event, token)) return absl::StatusCode::kUnknown;
    return Find(node, event, token)->code;
  }
  // Opens on all nodes, with all others.
  void OpenAll(uint64_t communicator) {
    for (int node = 0; node < nodes(); ++node) Open(node, communicator);
  }
  void Open(int node, uint64_t communicator) {
    std::vector<PeerId> peers;
    for (int other = 0; other < nodes(); ++other) {
      if (other != node) peers.push_back(static_cast<PeerId>(other));
    }
    SHUNT_CHECK(at(node).Open(communicator, peers).ok());
  }

 protected:
  explicit World(int nodes) : logs_(nodes), quiet_(nodes) {}
  bool PollAll() {
    bool moved = false;
    for (int node = 0; node < nodes(); ++node) {
      if (quiet_[node]) continue;
      Completion batch[7];  // few, so that batches are used up
      while (const size_t count = at(node).Poll(absl::MakeSpan(batch))) {
        moved = true;
        for (size_t i = 0; i < count; ++i) {
          if (batch[i].event == Event::kPeerLost) {
            UNSCOPED_INFO("node " << node << ": " << batch[i].text);
          }
          logs_[node].push_back(std::move(batch[i]));
        }
      }
    }
    return moved;
  }

 private:
  std::vector<Log> logs_;
  std::vector<bool> quiet_;
};

class FakeWorld : public World {
 public:
  explicit FakeWorld(int nodes, const Engine::Options& engine = {})
      : FakeWorld(nodes, FakeNetwork::Options{.engine = engine}) {}
  FakeWorld(int nodes, const FakeNetwork::Options& options) : World(nodes), network_(options) {
    for (int node = 0; node < nodes; ++node) network_.AddEndpoint();
    for (int a = 0; a < nodes; ++a) {
      for (int b = a + 1; b < nodes; ++b) network_.Connect(a, b);
    }
  }
  Transport& at(int node) override { return network_.endpoint(node); }
  bool Pump() override { return network_.Step(); }
  void Nudge() override { network_.Step(); }
  void Kill(int node) override {
    network_.Kill(node);
    SetQuiet(node, true);
  }
  FakeNetwork& network() { return network_; }

 private:
  FakeNetwork network_;
};

// The same with several streams whose frames overtake one another.
class FakeStreamsWorld : public FakeWorld {
 public:
  explicit FakeStreamsWorld(int nodes, const Engine::Options& engine = {})
      : FakeWorld(nodes, FakeNetwork::Options{
                             .seed = 7, .jitter_ns = 300'000, .streams = 4, .engine = engine}) {}
};

// The same where a node's connections share a slow port.
class FakePortsWorld : public FakeWorld {
 public:
  explicit FakePortsWorld(int nodes, const Engine::Options& engine = {})
      : FakeWorld(nodes, FakeNetwork::Options{.engine = engine}) {
    const PortRate rate{.bytes_per_second = 1e9, .burst_bytes = 4096, .frame_ns = 500};
    for (int node = 0; node < nodes; ++node) network().SetPorts(node, rate, rate);
  }
};

}  // namespace shunt::transport::testing
