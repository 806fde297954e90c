// What the transport keeps for a peer, a stream of it, and a message on its way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/transport/ucx/ucx_transport.h"

namespace shunt::transport {

// A message that UCX has not finished sending.
struct UcxTransport::Post : UcxWorker::Call {
  Peer* peer = nullptr;
  int stream = 0;
  std::array<std::byte, kRailHeadBytes> head{};
  Bytes owned;    // payload, unless it lies in staging memory
  int slot = -1;  // of the staging memory
};

// The piece of a stream that is being read into its buffer.
struct UcxTransport::Landing : UcxWorker::Call {
  Peer* peer = nullptr;
  int stream = 0;
  bool active = false;  // UCX has it
  bool landed = false;  // and now the engine is to know
  uint64_t communicator = 0;
  uint32_t bytes = 0;
  Registrations::Entry* registration = nullptr;
};

// A frame that waits for its turn.
struct UcxTransport::Waiting {
  bool here = false;
  wire::Header header;
  Bytes payload;
  UcxWorker::Offer* offer = nullptr;
};

struct UcxTransport::Lane {
  // Out. `sent` - `peer_took` frames are on their way or wait there.
  uint64_t sent = 0, peer_took = 0;
  bool held_up = false;
  std::unique_ptr<std::byte[]> staging;
  UcxWorker::Memory* staging_memory = nullptr;
  std::vector<int> free_slots;

  // In. Frame n waits at ring[n % ring.size()].
  uint64_t taken = 0, told = 0;
  std::vector<Waiting> ring;
  Landing landing;
};

struct UcxTransport::Peer {
  enum class State : uint8_t {
    kMeeting,  // over TCP
    kProbing,  // the rail
    kUp,
    kLosing,  // cut off; something still lands
    kLost,
  };
  TcpPeer info;
  State state = State::kMeeting;
  PeerState* engine = nullptr;
  PeerId bootstrap_id = 0;
  uint64_t meeting = 0;  // the communicator over TCP; 0: not open
  RailKey key_in{}, key_out{};
  UcxWorker::Endpoint* endpoint = nullptr;
  std::vector<std::unique_ptr<Lane>> lanes;
  uint32_t window = 0;  // frames of a stream that may wait there
  bool probed = false;
  int unfinished = 0;  // posts and landings that UCX has
  int64_t added_ns = 0, sent_ns = 0, came_ns = 0;
  absl::Status why;

  bool gone() const { return state == State::kLosing || state == State::kLost; }
};

}  // namespace shunt::transport
