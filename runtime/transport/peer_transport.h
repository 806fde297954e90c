// A carrier between daemons: what an owner needs beside messages, whatever the carrier.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/transport/tcp/options.h"
#include "runtime/transport/transport.h"

namespace shunt::transport {

// Peers meet over TCP; a carrier may move on from there. One thread at a time, as Transport.
class PeerTransport : public Transport {
 public:
  // Where peers connect to.
  virtual uint16_t port() const = 0;
  // Says hello as another incarnation of this node from now on. All peers must have been removed.
  virtual void Renew(uint64_t incarnation) = 0;
  // Never blocks; its outcome is kPeerUp or kPeerLost. ALREADY_EXISTS if the id is used, or a peer
  // of that name is not lost yet.
  virtual absl::Status AddPeer(const TcpPeer& peer) = 0;
  // Ends its connections; its operations end, with kPeerLost last. The id may be used again.
  virtual void RemovePeer(PeerId id) = 0;

  // How the connection of a peer that is up stands, for people.
  struct LinkState {
    uint64_t unsent_bytes = 0;          // that the kernel has and has not sent
    uint64_t unacknowledged_bytes = 0;  // sent, and the peer's kernel has not said that it has them
    uint32_t retransmits = 0;           // in a row, of the oldest of these
    int64_t came_ns = 0;                // when something came from it last; 0: not up
  };
  virtual LinkState link(PeerId peer) const = 0;
};

}  // namespace shunt::transport
