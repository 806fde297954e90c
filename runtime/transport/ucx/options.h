// What the owner of a UcxTransport says about itself, and what it can read of how things go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/transport/engine/engine.h"
#include "runtime/transport/tcp/options.h"
#include "runtime/transport/ucx/registrations.h"

namespace shunt::transport {

struct UcxOptions {
  // This node's name, address, tokens' rules, heartbeats and time limits: those of the TCP
  // connection over which two nodes prove who they are and tell each other how to be reached. Its
  // heartbeats and limits hold for the rail too. `engine`, `streams` and `crc` of it are not used.
  TcpOptions bootstrap = {};
  Engine::Options engine = {};

  // UCX's names of the carriers that it may use (UCX_TLS): rc or dc with their variants; for
  // tests within one node sm, posix, sysv, cma, self. Others are refused, tcp above all: UCX's TCP
  // listens on a port, and random bytes that come there end the process.
  //
  // Within one node UCX tells nothing of failures; TCP does, but what was on its way to a dead peer
  // is then kept until the transport ends.
  std::string transports = "rc";
  std::string devices = {};  // UCX_NET_DEVICES, for example "mlx5_0:1"; empty: all
  // More of UCX's settings, as ucp_config_modify names them. Those of the environment hold where
  // neither this nor the transport says otherwise.
  std::vector<std::pair<std::string, std::string>> settings = {};

  int streams = 1;  // to a peer, with an order of their own; the smaller of both sides' numbers
  // Frames of a stream that may wait here for their turn; the peer sends no more. 2 to 4096.
  uint32_t frames_waiting_max = 128;
  // Pieces of a stream that may wait for the peer to fetch them. Each has piece_bytes of staging
  // memory, once the first large message is sent.
  int pieces_in_flight = 4;
  size_t fetch_bytes_min = 16 << 10;  // smaller pieces are sent, not fetched; at least 1024

  // Of receive buffers (UcxTransport::AddMemory).
  Registrations::Options registrations = {};

  // Close waits so long for RDMA reads into buffers that it gives back; then the peer is lost.
  int64_t close_wait_ns = 1'000'000'000;
};

struct UcxStatistics {
  Registrations::Counters registrations;
  uint64_t fetches = 0;             // pieces read out of a peer's staging memory
  uint64_t fetches_registered = 0;  // of those, into memory of AddMemory that was registered
  uint64_t fetches_dropped = 0;     // pieces that nobody wanted any more
  uint64_t messages_refused = 0;    // from the rail, without the name of a peer's connection
  uint64_t endpoints_failed = 0;
  uint64_t staging_bytes = 0;  // registered now, for sending
};

}  // namespace shunt::transport
