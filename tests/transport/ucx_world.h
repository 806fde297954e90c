// Nodes on 127.0.0.1 whose rails are this machine's: shared memory, or what
// SHUNT_TEST_UCX_TRANSPORTS names ("rc_v" where there is an RDMA device).
#pragma once

#include <poll.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/transport/ucx/ucx_transport.h"
#include "tests/transport/tcp_world.h"

namespace shunt::transport::testing {

inline std::string TestTransports() {
  const char* named = std::getenv("SHUNT_TEST_UCX_TRANSPORTS");
  return named == nullptr ? "sm,self" : named;
}

class UcxWorld : public World {
 public:
  explicit UcxWorld(int nodes, const Engine::Options& engine = {})
      : UcxWorld(nodes, UcxOptions{.engine = engine}) {}
  UcxWorld(int nodes, UcxOptions base) : World(nodes) {
    base.transports = TestTransports();
    base.bootstrap = Patient(base.bootstrap);
    for (int node = 0; node < nodes; ++node) {
      UcxOptions options = base;
      options.bootstrap = NodeOptions(node, base.bootstrap);
      auto made = UcxTransport::Create(options);
      UNSCOPED_INFO(made.status().ToString());
      SHUNT_CHECK(made.ok());
      transports_.push_back(std::move(*made));
    }
    for (int node = 0; node < nodes; ++node) {
      for (int other = 0; other < nodes; ++other) {
        if (other == node) continue;
        SHUNT_CHECK(
            transports_[node]->AddPeer(PeerInfo(node, other, transports_[other]->port())).ok());
      }
    }
  }
  Transport& at(int node) override { return *transports_[node]; }
  UcxTransport& ucx(int node) { return *transports_[node]; }
  bool Pump() override { return Wait(10'000); }
  void Settle() override {
    while (PollAll() || Wait(20)) {
    }
  }
  void Kill(int node) override {
    SetQuiet(node, true);
    transports_[node].reset();
  }

 private:
  bool Wait(int timeout_ms) {
    std::vector<pollfd> fds;
    for (int node = 0; node < nodes(); ++node) {
      if (!quiet(node)) fds.push_back({transports_[node]->fd(), POLLIN, 0});
    }
    return ::poll(fds.data(), fds.size(), timeout_ms) > 0;
  }
  std::vector<std::unique_ptr<UcxTransport>> transports_;
};

// Several streams, windows so small that every sender waits for them, and pieces that are fetched
// as soon as they may be.
class UcxStreamsWorld : public UcxWorld {
 public:
  explicit UcxStreamsWorld(int nodes, const Engine::Options& engine = {})
      : UcxWorld(nodes, UcxOptions{.engine = engine,
                                   .streams = 3,
                                   .frames_waiting_max = 4,
                                   .pieces_in_flight = 2,
                                   .fetch_bytes_min = kRailFetchBytesMin}) {}
};

}  // namespace shunt::transport::testing
