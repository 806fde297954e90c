// Nodes on 127.0.0.1.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "runtime/transport/tcp/tcp_transport.h"
#include "tests/transport/world.h"

namespace shunt::transport::testing {

inline std::string NodeName(int node) { return "node-" + std::to_string(100 + node); }

inline wire::Token TokenFrom(int issuer, int to) {
  wire::Token token;
  for (size_t i = 0; i < token.size(); ++i) {
    token[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(issuer) * 31 +
                                      static_cast<size_t>(to) * 57 + 1);
  }
  return token;
}

inline TcpOptions NodeOptions(int node, const TcpOptions& base = {}) {
  TcpOptions options = base;
  options.name = NodeName(node);
  options.incarnation = 1000 + static_cast<uint64_t>(node);
  return options;
}

// A loaded machine is no reason to lose a peer.
inline TcpOptions Patient(TcpOptions options) {
  options.lost_after_ns = options.connect_timeout_ns = options.handshake_timeout_ns =
      60'000'000'000;
  return options;
}

// What `node` is told of `other`, which listens on `port`.
inline TcpPeer PeerInfo(int node, int other, uint16_t port) {
  TcpPeer peer;
  peer.id = static_cast<PeerId>(other);
  peer.name = NodeName(other);
  peer.address = "127.0.0.1";
  peer.port = port;
  peer.incarnation = 1000 + static_cast<uint64_t>(other);
  peer.token_to_show = TokenFrom(other, node);
  peer.token_to_expect = TokenFrom(node, other);
  return peer;
}

class TcpWorld : public World {
 public:
  explicit TcpWorld(int nodes, const Engine::Options& engine = {})
      : TcpWorld(nodes, Patient(TcpOptions{.engine = engine})) {}
  TcpWorld(int nodes, const TcpOptions& base) : World(nodes) {
    for (int node = 0; node < nodes; ++node) {
      auto made = TcpTransport::Create(NodeOptions(node, base));
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
  TcpTransport& tcp(int node) { return *transports_[node]; }
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
  std::vector<std::unique_ptr<TcpTransport>> transports_;
};

// Several sockets a peer, checksums, and buffers so small that every write is cut.
class TcpStreamsWorld : public TcpWorld {
 public:
  explicit TcpStreamsWorld(int nodes, const Engine::Options& engine = {})
      : TcpWorld(nodes, Patient({.engine = engine,
                                 .streams = 3,
                                 .crc = true,
                                 .unsent_bytes_max = 4096,
                                 .send_buffer_bytes = 16 << 10,
                                 .receive_buffer_bytes = 16 << 10})) {}
};

// The same, moved by two threads beside the owner's.
class TcpMoversWorld : public TcpWorld {
 public:
  explicit TcpMoversWorld(int nodes, Engine::Options engine = {})
      : TcpWorld(nodes, Patient({.engine = OwnStreams(std::move(engine)),
                                 .streams = 4,
                                 .movers = 2,
                                 .crc = true,
                                 .unsent_bytes_max = 4096,
                                 .send_buffer_bytes = 16 << 10,
                                 .receive_buffer_bytes = 16 << 10})) {}

  bool moves_alone() const override { return true; }

 protected:
  TcpMoversWorld(int nodes, const TcpOptions& base) : TcpWorld(nodes, base) {}
  static Engine::Options OwnStreams(Engine::Options engine) {
    engine.own_stream_bytes = 1;
    return engine;
  }
};

// Movers as daemons have them: they look for work before they sleep, and sockets take more than a
// mover's turn.
class TcpSpinningMoversWorld : public TcpMoversWorld {
 public:
  explicit TcpSpinningMoversWorld(int nodes, Engine::Options engine = {})
      : TcpMoversWorld(nodes, Patient({.engine = OwnStreams(std::move(engine)),
                                       .streams = 4,
                                       .movers = 2,
                                       .mover_spin_ns = 200'000,
                                       .unsent_bytes_max = 0,
                                       .send_buffer_bytes = 4 << 20,
                                       .receive_buffer_bytes = 4 << 20})) {}
};

}  // namespace shunt::transport::testing
