// What the engine keeps for each send, receive, peer, and communicator with a peer (a link).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "runtime/transport/engine/operations.h"
#include "runtime/transport/engine/pool.h"
#include "runtime/transport/link_tally.h"
#include "runtime/transport/memory.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/wire/header.h"

namespace shunt::transport {

// A tag less its communicator.
struct TagKey {
  uint64_t sequence = 0;
  uint32_t channel = 0, step = 0, slice = 0;
  bool operator==(const TagKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const TagKey& k) {
    return H::combine(std::move(h), k.sequence, k.channel, k.step, k.slice);
  }
};
inline TagKey KeyOf(const Tag& t) { return {t.sequence, t.channel, t.step, t.slice}; }

using Bytes = std::unique_ptr<std::byte[]>;

struct Link;
struct PeerState;

// A posted send, from PostSend to kSent; one that goes into a slot until it leaves its queue.
struct SendState {
  uint64_t serial = 0;  // order of posting
  Link* link = nullptr;
  Message message;
  uint64_t token = 0;
  Memory memory;
  Bytes copy;            // eager and short: what `memory` was, for kSent has been told
  bool slotted = false;  // eager: it has its slots
  bool told = false;     // as sent: its bytes are in `copy`
  uint64_t grant = 0;    // the peer's name for its buffer
  uint64_t pulled = 0;   // bytes that frames have been made of
  bool announced = false;
  bool waits = false;  // in link->unannounced
};

// A posted receive, until kReceived.
struct RecvState {
  uint64_t serial = 0;
  Link* link = nullptr;
  Message message;
  uint64_t token = 0;
  Memory memory;
  uint64_t received = 0;
  bool granted = false;
  bool waits = false;    // in link->ungranted
  bool landing = false;  // a payload is on its way into it
  bool announcement_seen = false;
};

// What came for a tag before anything was posted for it.
struct Waiting {
  Signature signature = 0;
  uint64_t bytes = 0;
  uint64_t grant = 0;  // grants
  Bytes payload;       // eager messages
};

struct Link {
  PeerState* peer = nullptr;
  uint64_t communicator = 0;
  Operations* operations = nullptr;  // null once closed here

  bool open_here = false, closed_here = false, close_sent = false;
  bool open_there = false, close_came = false;
  uint64_t data_frames_sent = 0, data_frames_begun = 0, data_frames_came = 0;
  uint64_t data_frames_due = 0;  // what the peer's close said

  // What we may send.
  uint64_t eager_bytes = 0;
  uint32_t slots = 0, slots_all = 0;
  uint32_t notes = 0, notes_all = 0;
  uint32_t headers_max = 0;
  uint32_t announced = 0;     // announced and neither granted nor refused
  uint32_t eager_queued = 0;  // told as sent, and still to be pulled
  // What we have let the peer send.
  uint32_t slots_taken = 0, slots_owed = 0;
  uint32_t notes_taken = 0, notes_owed = 0;
  uint32_t granted = 0;  // grants neither filled nor refused

  absl::flat_hash_map<TagKey, Pool<SendState>::Id> sends;
  absl::flat_hash_map<TagKey, Pool<RecvState>::Id> recvs;
  absl::flat_hash_map<TagKey, Waiting> grants, eager, announcements;
  absl::flat_hash_set<TagKey> overtaken;        // messages that came before their announcement
  std::deque<Pool<SendState>::Id> unannounced;  // beyond the window
  std::deque<Pool<RecvState>::Id> ungranted;    // beyond the window
  std::deque<std::string> held_notes;           // until the peer opens, also if we have closed
  std::vector<Pool<SendState>::Id> held_sends;
  std::vector<Pool<RecvState>::Id> held_recvs;
};

// A frame that is being sent. Its payload is from `begin` of `memory` on.
struct OutFrame {
  wire::Header header;
  Memory memory;
  uint64_t begin = 0;
  Bytes owned;                   // what `memory` is, unless it is the caller's
  Pool<SendState>::Id send = 0;  // whose last frame this is
};

// A frame whose payload is arriving.
struct InFrame {
  enum class Kind : uint8_t { kNone, kDrain, kData, kEager, kWaiting, kNote };
  Kind kind = Kind::kNone;
  wire::Header header;
  Link* link = nullptr;
  uint32_t arrived = 0;
  Memory memory;       // empty: the bytes go nowhere
  uint64_t begin = 0;  // where the payload begins in it
  Pool<RecvState>::Id recv = 0;
  Bytes owned;
};

struct Stream {
  std::deque<OutFrame> sending;
  InFrame in;
  std::array<std::deque<Pool<SendState>::Id>, 3> queues;  // by class
  bool listed = false;                                    // in the engine's list of work
};

struct ControlFrame {
  wire::Header header;
  Bytes payload;
};

struct PeerState {
  enum class State : uint8_t { kConnecting, kUp, kLost };
  PeerId id = 0;
  State state = State::kConnecting;
  std::string why;  // lost
  std::vector<Stream> streams;
  std::deque<ControlFrame> control;  // on stream 0
  uint32_t large_sent = 0;           // on streams of their own
  absl::flat_hash_map<uint64_t, std::unique_ptr<Link>> links;
  size_t parting = 0;            // links that are closed here and wait for the peer to open
  std::deque<uint64_t> gave_up;  // the last communicators that it closed before we opened them
  bool GaveUp(uint64_t communicator) const {
    return std::find(gave_up.begin(), gave_up.end(), communicator) != gave_up.end();
  }
  PeerCounters counters;
  LinkTally* tally = nullptr;  // its carrier's, of all its lives; null: nobody counts
};

inline void CountProtocolError(PeerState* peer) {
  ++peer->counters.protocol_errors;
  if (peer->tally != nullptr) peer->tally->protocol_errors.Add();
}

inline Traffic TrafficOf(const wire::Header& header) {
  const bool payload = header.type == wire::Type::kData || header.type == wire::Type::kEager;
  return payload ? static_cast<Traffic>(header.service_class) : Traffic::kControl;
}

}  // namespace shunt::transport
