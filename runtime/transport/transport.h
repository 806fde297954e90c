// Messages between daemons. One interface for all carriers (fake/, tcp/, ucx/), held to one
// conformance suite.
//
//   sender                                   receiver
//   PostSend(tag, data) ──┐              ┌── PostRecv(tag, buffer)        both name the message
//                         │◄── grant ────┤                                large: the buffer is
//                         granted ├─── data ────►│ into the granted buffer
//   kSent ◄───────────────┘              └─► kReceived
//
// Payload moves only into memory that its receiver has granted: a large message into the buffer of
// its receive, one of up to eager_bytes into the standing slots that the receiver granted when it
// opened the communicator, or, while too few of those are free, into a buffer like a large one.
// What arrives unasked is a fixed-size header, and their number is bounded for each
// communicator: none can starve another on the connection that they share.
//
// A message is matched by its tag, its signature and its length. One that differs in the signature
// is never matched: it is stray. Receives may be posted before or after the message comes, and
// either side may post before the other has opened the communicator, or before the peer is up.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace shunt::transport {

// A peer daemon, numbered by the owner; never used again for another one.
using PeerId = uint32_t;

// Names one message. Sender and receiver compute the same tag from their plans; between two peers
// no two messages have the same.
struct Tag {
  uint64_t communicator = 0;  // this epoch of it: no other epoch has the same number
  uint64_t sequence = 0;      // of the operation on its channel
  uint32_t channel = 0;       // 0: collectives; otherwise one ordered pair of ranks
  uint32_t step = 0;          // which of the plan's messages from this sender to this receiver
  uint32_t slice = 0;         // part of the operation
  bool operator==(const Tag&) const = default;
};

// What the scheduler orders by; the numbers are those of the protocol.
enum class Class : uint8_t { kLatency = 0, kBulk = 1, kBackground = 2 };

// A digest of the call that a message belongs to (kind, type, reduction, count, root). Two ends
// whose digests differ do not belong together.
using Signature = uint64_t;

struct Message {
  PeerId peer = 0;
  Tag tag;
  Signature signature = 0;
  Class service_class = Class::kBulk;
};

enum class Event : uint8_t {
  kSent,      // the buffer is the caller's again, and the message will arrive unless the peer is
              // lost or closes first: Close doesn't take it back
  kReceived,  // the buffer holds the whole message
  kStray,   // a header came whose operation nothing was posted for, or whose signature differs from
            // what was: told once for each (peer, communicator, channel, sequence, signature)
  kNote,    // the peer sent a note (below)
  kPeerUp,  // connected and authenticated
  kPeerLost,  // its operations are over: each has had its completion with an error before this one
};

struct Completion {
  Event event = Event::kSent;
  absl::StatusCode code = absl::StatusCode::kOk;
  PeerId peer = 0;
  uint64_t token = 0;       // kSent, kReceived: as posted
  Tag tag = {};             // kSent, kReceived, kStray; kNote: its communicator
  Signature signature = 0;  // kStray
  std::string text = {};    // kNote: its bytes; kPeerLost: why, in words
};

struct Limits {
  size_t eager_bytes = 8 << 10;  // larger messages wait for a grant
  uint32_t eager_slots = 16;     // of 8 KiB each, a communicator and peer, standing
  // A communicator and peer: so many grants, announcements and notes may each wait at the receiver;
  // the next receives and sends wait at home, in the order of posting. At most 65535. Two peers
  // that post in different orders may get stuck beyond it.
  uint32_t headers_waiting_max = 1024;
  size_t note_bytes_max = 1024;
  size_t send_places_max = 1, recv_places_max = 1;  // see PostSend
};

// What the carriers count.
struct PeerCounters {
  uint64_t payload_bytes_sent = 0, payload_bytes_received = 0;
  uint64_t messages_sent = 0, messages_received = 0;
  uint64_t eager_sent = 0;
  uint64_t credit_stalls = 0;  // a send had to wait for a slot or a grant when it was posted
  uint64_t protocol_errors = 0;
};

// Not thread-safe: one thread owns a transport and is the only one to call it.
class Transport {
 public:
  virtual ~Transport() = default;

  // Gives each of `peers` standing slots for the communicator, and lets messages of it come and go.
  // The same peers must open it too, in any order; what is posted before waits. Peers that are lost
  // are left out. FAILED_PRECONDITION if it is open already, NOT_FOUND for an unknown peer.
  virtual absl::Status Open(uint64_t communicator, absl::Span<const PeerId> peers) = 0;
  // Withdraws everything of a communicator that has not completed. No buffer of it is touched after
  // this has returned, and no completion of it will come. What its peers still have posted towards
  // this one ends there with ABORTED.
  virtual void Close(uint64_t communicator) = 0;

  // Sends `data`, which stays unchanged until kSent. Never blocks; never fails at once: what is
  // wrong comes as a completion: UNAVAILABLE the peer is lost, NOT_FOUND it is unknown, ABORTED it
  // has closed the communicator, FAILED_PRECONDITION the communicator is not open here,
  // ALREADY_EXISTS the tag is in use, INVALID_ARGUMENT the receiver's length differs.
  virtual void PostSend(const Message& message, absl::Span<const std::byte> data,
                        uint64_t token) = 0;
  // Grants `buffer`, as long as the message, until kReceived. A message of another length ends it
  // with INVALID_ARGUMENT, and its send too if that has not completed. Codes as above.
  virtual void PostRecv(const Message& message, absl::Span<std::byte> buffer, uint64_t token) = 0;
  // The same for memory in several places, in the order of the payload, as many as limits() says.
  // They are named to the operating system as they are: nothing is copied together.
  virtual void PostSend(const Message& message, absl::Span<const iovec> places, uint64_t token) = 0;
  virtual void PostRecv(const Message& message, absl::Span<const iovec> places, uint64_t token) = 0;
  // A few bytes that nobody asked for, at most note_bytes_max: news of calls and failures. Notes of
  // one communicator to one peer arrive in order. RESOURCE_EXHAUSTED beyond what the peer lets
  // wait: its owner has not polled them. A Close after it doesn't take it back, nor does the peer's
  // opening late.
  virtual absl::Status SendNote(PeerId peer, uint64_t communicator,
                                absl::Span<const std::byte> note) = 0;

  // Moves what can be moved and fills `out` with what has ended; its result is how many. Never
  // blocks. What was posted leaves at the next Poll, so that many messages go in one system call.
  virtual size_t Poll(absl::Span<Completion> out) = 0;
  // Readable when Poll may have something to do. Timers (heartbeats) are among its reasons. Before
  // waiting for it, Poll until it returns 0: neither posts nor completions in hand make it
  // readable.
  virtual int fd() const = 0;

  virtual PeerCounters counters(PeerId peer) const = 0;
  virtual const Limits& limits() const = 0;
};

}  // namespace shunt::transport
