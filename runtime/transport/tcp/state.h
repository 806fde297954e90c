// What the transport keeps for a socket and for a peer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/transport/tcp/byte_stream.h"
#include "runtime/transport/tcp/frames.h"
#include "runtime/transport/tcp/tcp_transport.h"

namespace shunt::transport {

struct TcpTransport::Socket {
  enum class State : uint8_t {
    kConnecting,
    kGreeted,   // we connected and said hello: waiting for the answer
    kAccepted,  // waiting for a hello
    kUnknown,   // has come before AddPeer of its name
    kReady,     // authenticated; the peer's other streams are not yet
    kOpen,
  };
  State state = State::kAccepted;
  std::unique_ptr<ByteStream> bytes;
  std::string remote;
  Peer* peer = nullptr;  // none while unauthenticated, if the other side connected
  int stream = 0;
  std::optional<uint32_t> watched;  // events; none: not in epoll yet
  int64_t since_ns = 0;
  bool blocked = false;
  bool queued = false;  // to be written by its mover
  bool closed = false;
  Mover* mover = nullptr;  // none: the owner moves it
  std::mutex busy;         // held in system calls (Gate)
  absl::Status failed;     // why it is not used any more
  std::array<std::byte, wire::kHelloBytes> hello_bytes{};
  size_t hello_got = 0;
  std::optional<wire::Hello> hello;
  std::optional<FrameReader> reader;
  FrameWriter writer;
};

struct TcpTransport::Peer {
  TcpPeer info;
  PeerState* engine = nullptr;
  std::vector<std::shared_ptr<Socket>> sockets;  // by stream; null until it is ready, if it comes
  int ready = 0;
  uint8_t version = 0;  // 0: not agreed yet
  int64_t added_ns = 0;
  int64_t sent_ns = 0, came_ns = 0;
  bool up = false, lost = false;
  absl::Status ending;  // what its first failed socket says
  int64_t ending_ns = 0;
};

}  // namespace shunt::transport
