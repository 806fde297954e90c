// What the owner of a TcpTransport says about itself and its peers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "runtime/transport/engine/engine.h"
#include "runtime/transport/wire/hello.h"

namespace shunt::transport {

struct TcpOptions {
  std::string cluster = "shunt";
  std::string name = {};     // this node's
  uint64_t incarnation = 0;  // of this daemon: another number after every start

  // A numeric IPv4 or IPv6 address of this node; port 0 takes a free one.
  std::string listen_address = "127.0.0.1";
  uint16_t listen_port = 0;

  // A grant costs a frame each way, as much as copying some tens of kilobytes.
  Engine::Options engine = {.limits = {.eager_bytes = 64 << 10, .eager_slots = 32}};
  int streams = 1;            // sockets to a peer; the side that connects decides
  int movers = 0;             // threads for streams 1 and up; 0: the owner moves everything
  int64_t mover_spin_ns = 0;  // a mover stays awake for so long after it has moved something
  std::function<void()> on_mover_start = {};  // on each mover's thread
  bool crc = false;  // a CRC32C in every frame sent; one received is always checked
  wire::Versions versions = wire::kVersions;

  int64_t heartbeat_ns = 500'000'000;     // of silence before a ping
  int64_t lost_after_ns = 2'500'000'000;  // of the peer's silence
  int64_t handshake_timeout_ns =
      2'000'000'000;                           // one socket, from accepting it to its peer's token
  int64_t connect_timeout_ns = 5'000'000'000;  // from AddPeer to kPeerUp
  int unauthenticated_max = 64;  // sockets that have not shown a token; the oldest goes first

  // Bytes that may lie in the kernel unsent: what a latency message has to wait behind. 0: no
  // limit.
  int unsent_bytes_max = 128 << 10;
  int send_buffer_bytes = 0;     // SO_SNDBUF; 0: the kernel's own tuning
  int receive_buffer_bytes = 0;  // SO_RCVBUF
  std::string congestion = {};   // TCP_CONGESTION, "cubic"; empty: the system's

  // Where what passes is counted, by peers' names; outlives the transport. Null: nowhere.
  LinkTallies* tallies = nullptr;

  // Called, within Poll, for each connection that was turned away; must not call the transport.
  // Holds no secrets.
  std::function<void(const absl::Status&)> on_refused = {};
};

// `movers` threads with a stream each for messages that are large enough to be worth a hand-over.
void UseMovers(TcpOptions* options, int movers);
// Fewer CPUs have more to do than to wait for one another.
inline int DefaultMovers(int cpus) { return cpus >= 8 ? 2 : 0; }

// What the control plane has agreed with another node. Of two nodes, the one with the smaller name
// connects and the other listens: two connections can't cross.
struct TcpPeer {
  PeerId id = 0;
  std::string name;
  std::string address;  // numeric; needed on the side that connects
  uint16_t port = 0;
  uint64_t incarnation = 0;
  wire::Token token_to_show{};    // that the peer issued to this node
  wire::Token token_to_expect{};  // that this node issued to the peer
};

}  // namespace shunt::transport
