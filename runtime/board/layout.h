// The board: a small shared memory object in which the ranks of one communicator on one node meet.
// The daemon makes it, its members map it, and every call of every rank is posted on it before any
// payload takes any path.
//
//   header     failure record, rank table
//   ranks      a line each: futex word to sleep on; another: the rank's last call; more: what it
//              counts
//   calls      a ring of lines each: the rank's last calls, for people (runtime/recorder)
//   channel 0  the collectives: all ranks take part, one sequence
//   channel 1… an ordered pair of ranks each (send → receive), two participants, one sequence each
//   beyond     an ordered pair of which one end is on another node: one participant
//
//   a channel  slots (a ring of operations: 32 collectives, 256 on a device board; 4 of a pair):
//     fate       one line: outcome of the operation, chunks done
//     lanes      one line each: next chunk to claim
//     posts      one line a participant: the call's signature and where its data lies
//     progress   one line a participant: windows staged in and taken out (memory outside regions)
//     payloads   two slots: a participant's small input and output
//     tables     a participant's counts and displacements (all_to_all_v)
//
// All words in it are hostile to the daemon (any member may write anything) and trusted by no
// offset: geometry follows from the world size alone, never from what the board says. Pages that
// nobody touched cost nothing, so the sparse parts (pairs that never talk) are free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/core/types.h"
#include "runtime/recorder/call_ring.h"

namespace shunt::board {

// Of all nodes: a post's root has 16 bits.
inline constexpr int kMaxWorld = 32767;
inline constexpr int kMaxLocalRanks = 128;
inline constexpr size_t kLine = 64;
inline constexpr uint32_t kMagic = 0x53484e54;  // "SHNT"
inline constexpr uint32_t kVersion = 2;
inline constexpr int kMaxLanes = 8;
inline constexpr size_t kFailureTextBytes = 1536;
// Payload that travels in the post's own cache line.
inline constexpr size_t kLineInlineBytes = 32;
// Payload that may travel in a slot of the board; member.cc says when a call on regions skips it.
inline constexpr size_t kCollectiveInlineBytes = 16384;
inline constexpr size_t kPairInlineBytes = 2048;
// One window of a staging copy, input or output. A rank may have a staged operation in the works on
// each of its pairs at once, so theirs are shorter.
inline constexpr size_t kStagingWindowBytes = 256 << 10;
inline constexpr size_t kPairStagingWindowBytes = 128 << 10;

enum class FailureReason : uint32_t {
  kNone = 0,
  kMismatch,    // two ranks' calls differ
  kAbsent,      // a rank did not call before the deadline
  kStuck,       // all called, but a rank did not finish its part before the deadline
  kRankDied,    // a rank's process is gone
  kRankLeft,    // a rank left the communicator
  kAborted,     // a rank aborted
  kBadMemory,   // a post names memory that isn't there
  kDaemonGone,  // no shuntd any more
};

// Written once, by whoever first finds that an operation cannot succeed; then the communicator is
// dead.
struct Failure {
  std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 readable
  uint32_t reason;
  int32_t rank;  // culprit, -1 unknown
  uint32_t text_size;
  char text[kFailureTextBytes];  // words for people, not terminated
};

struct RankRow {
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> dead;  // 1: the daemon saw the process end; 2: the rank left
  uint64_t session_id;
  char name[48];
};
static_assert(sizeof(RankRow) == kLine);

struct Header {
  uint32_t magic;
  uint32_t version;
  int32_t world;
  uint32_t calls_kept;  // of each rank; 0: the recorder is off
  uint64_t communicator_id;
  uint64_t epoch;
  char name[136];  // up to 128 bytes, terminated; for messages
  Failure failure;
};

struct alignas(kLine) Bell {
  std::atomic<uint32_t> count;     // futex word: bumped to wake the rank's sleepers
  std::atomic<uint32_t> sleeping;  // 1: somebody sleeps or is about to
};

// What a rank called last, for messages: its own line, so that writing it costs the hot path
// nothing.
struct alignas(kLine) LastCall {
  std::atomic<uint64_t> sequence;  // 0: it never called
  std::atomic<uint64_t> count;
  std::atomic<uint64_t>
      words;  // kind, dtype, redop (a byte each), how (post.h), root or peer (16 bits at bit 32)
  std::atomic<uint64_t> calls;  // that are noted in the rank's ring
};

// What a rank counts (tally.h): lines of its own.
inline constexpr size_t kArrivals = 7;
struct alignas(kLine) Tally {
  std::atomic<uint64_t> arrived;          // the last collective that it came to
  std::atomic<int64_t> at_ns[kArrivals];  // when, by sequence
  struct Kind {
    std::atomic<uint64_t> succeeded, failed, bytes, pad;
  } kinds[kOpKindCount];
};
static_assert(sizeof(Tally) == 7 * kLine);

// How a participant's buffer is reached.
enum class Place : uint8_t {
  kNone = 0,    // no buffer on this side
  kRegion = 1,  // (region, offset)
  kSlot = 2,    // the whole of it lies in the board's payload slot (or the post's own line)
  kStaged = 3,  // windows of a staging region: (region, offset of the first of two windows)
};

enum PostFlags : uint8_t {
  kServed = 1,         // the daemon was asked to see this operation through
  kPriorComplete = 2,  // this rank had finished all its earlier operations of the channel
};

// word: sequence << 2 | state. A post is published by exchanging the word, and an absent rank's
// post is sealed the same way: one of the two wins, so an operation has one outcome.
enum PostState : uint64_t { kPosted = 1, kSealed = 2 };

struct PostBody {
  uint64_t count;
  uint8_t kind, dtype, redop, flags;
  uint8_t in_place_kind;  // Place
  uint8_t out_place_kind;
  int16_t root;
  uint64_t scalar;
  union {
    struct {
      uint64_t in_region, in_offset, out_region, out_offset;
    } ref;
    std::byte bytes[kLineInlineBytes];
  };
};

struct alignas(kLine) Post {
  std::atomic<uint64_t> word;
  PostBody body;
};
static_assert(sizeof(PostBody) == 56 && sizeof(Post) == kLine);

// outcome: sequence << 2 | 1 succeeded, 2 failed. done[w & 1]: see pass.h.
struct alignas(kLine) Fate {
  std::atomic<uint64_t> outcome;
  std::atomic<uint64_t> done[2];
};
enum Outcome : uint64_t { kSucceeded = 1, kFailed = 2 };

struct alignas(kLine) Lane {
  std::atomic<uint64_t> next;
};

struct alignas(kLine) StageProgress {
  std::atomic<uint64_t> staged_in;  // sequence (low 32 bits) << 32 | windows copied in
  std::atomic<uint64_t> taken_out;  // sequence (low 32 bits) << 32 | windows copied out
  std::atomic<uint64_t> working;  // the sequence while it holds chunks, else 0: names who is stuck
};

struct alignas(kLine) Retired {
  std::atomic<uint64_t> sequence;
  std::atomic<uint32_t> cpu;  // where its last one ended, plus 1; 0: unknown
};

// One row of an all_to_all_v table, for one peer.
struct VRow {
  uint64_t send_count, send_displ, recv_count, recv_displ;  // elements
};

// Who meets on a board. Ranks of the board are the node's; `world` counts all nodes'. Where they
// differ, the daemon exchanges what is posted with the other nodes, and nobody else decides an
// operation. On a device board, whose ranks are all of one node, the daemon's GPU workers move
// everything, also what lies in host memory, and the daemon alone decides.
struct BoardShape {
  int ranks = 0;  // on this node, at most kMaxLocalRanks
  int world = 0;
  // The node's ranks by their number in the communicator; null: board and communicator count alike.
  // Belongs to the caller, who does not take it from the board.
  const int32_t* numbers = nullptr;
  bool device = false;

  bool spans_nodes() const { return world != ranks; }
  int Number(int rank) const { return numbers == nullptr ? rank : numbers[rank]; }
  // The board's rank of a number, -1 if it is on another node.
  int RankOf(int number) const;
};

// Where things are in one channel. A view: plain pointers into the mapping, copied freely.
class Channel {
 public:
  Channel() = default;
  struct Geometry {
    int participants = 0;
    int slots = 0;
    size_t inline_bytes = 0;
    int table_rows = 0;  // of each participant; 0: no tables
  };
  Channel(std::byte* base, uint32_t id, const Geometry& geometry);

  uint32_t id() const { return id_; }
  int participants() const { return participants_; }
  int table_rows() const { return table_rows_; }
  int slots() const { return slots_; }
  int lanes() const { return lanes_; }
  size_t inline_bytes() const { return inline_bytes_; }
  size_t staging_window_bytes() const {
    return id_ == 0 ? kStagingWindowBytes : kPairStagingWindowBytes;
  }

  Fate& fate(uint64_t seq) const { return At<Fate>(Slot(seq), 0); }
  Lane& lane(uint64_t seq, int lane) const { return At<Lane>(Slot(seq), 1 + lane); }
  Post& post(uint64_t seq, int p) const { return At<Post>(Slot(seq), 1 + lanes_ + p); }
  StageProgress& progress(uint64_t seq, int p) const {
    return At<StageProgress>(Slot(seq), 1 + lanes_ + participants_ + p);
  }
  Retired& retired(int p) const { return *reinterpret_cast<Retired*>(base_ + p * kLine); }
  std::byte* payload_in(uint64_t seq, int p) const {
    return payloads_ + ((seq & 1) * participants_ + p) * 2 * inline_bytes_;
  }
  std::byte* payload_out(uint64_t seq, int p) const { return payload_in(seq, p) + inline_bytes_; }
  VRow* table(uint64_t seq, int p) const {
    return reinterpret_cast<VRow*>(tables_) +
           (static_cast<size_t>(seq % slots_) * participants_ + p) * table_rows_;
  }

  static size_t Bytes(const Geometry& geometry);

 private:
  template <typename T>
  T& At(std::byte* slot, int line) const {
    return *reinterpret_cast<T*>(slot + line * kLine);
  }
  std::byte* Slot(uint64_t seq) const { return slot_base_ + (seq % slots_) * slot_bytes_; }

  std::byte* base_ = nullptr;
  std::byte* slot_base_ = nullptr;
  std::byte* payloads_ = nullptr;
  std::byte* tables_ = nullptr;
  size_t slot_bytes_ = 0;
  size_t inline_bytes_ = 0;
  uint32_t id_ = 0;
  int participants_ = 0;
  int slots_ = 0;
  int lanes_ = 0;
  int table_rows_ = 0;
};

// A view of a mapped board. Does not own the mapping.
class Board {
 public:
  Board() = default;
  // `base` maps BytesFor(shape) bytes.
  Board(std::byte* base, const BoardShape& shape) : base_(base), shape_(shape) {}
  // All ranks on one node.
  Board(std::byte* base, int world) : Board(base, BoardShape{world, world}) {}

  // Bytes of a board, a multiple of the page size.
  static size_t BytesFor(const BoardShape& shape);
  static size_t BytesFor(int world) { return BytesFor(BoardShape{world, world}); }
  // Fills the header of a fresh, zeroed board.
  void Initialize(uint64_t communicator_id, uint64_t epoch, const char* name);
  // As many calls as the daemon has written into the header. Once: it may be changed by others.
  void KeepCallsAsTold() { KeepCalls(header().calls_kept); }

  const BoardShape& shape() const { return shape_; }
  int ranks() const { return shape_.ranks; }
  int world() const { return shape_.world; }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  RankRow& row(int rank) const;
  Bell& bell(int rank) const;
  LastCall& last_call(int rank) const;
  Tally& tally(int rank) const;
  // The rank's last calls; of size 0 unless KeepCalls was called.
  recorder::CallRing calls(int rank) const { return {CallNotes(rank), calls_kept_}; }
  // So many of each rank, from now on, by this view and its copies.
  void KeepCalls(uint32_t calls) { calls_kept_ = recorder::RingSize(calls); }
  // id 0: collectives; otherwise one of a pair.
  Channel channel(uint32_t id) const;
  uint32_t channel_count() const {
    const auto n = static_cast<uint32_t>(shape_.ranks);
    return 1 + n * n + (shape_.spans_nodes() ? 2 * n * static_cast<uint32_t>(shape_.world) : 0);
  }
  // Of two ranks of this board.
  uint32_t PairChannel(int source, int destination) const {
    return 1 + static_cast<uint32_t>(source) * shape_.ranks + destination;
  }
  // Of one of this board's ranks and a number of another node.
  uint32_t RemotePairChannel(int rank, int peer_number, bool sends) const {
    const auto n = static_cast<uint32_t>(shape_.ranks);
    return 1 + n * n + ((sends ? 0 : n) + rank) * static_cast<uint32_t>(shape_.world) + peer_number;
  }
  // Where a send or receive of `rank` with the peer of that number takes place.
  struct Seat {
    uint32_t channel = 0;
    int participant = 0;
  };
  Seat SeatOf(int rank, int peer_number, bool sends) const {
    const int peer = shape_.RankOf(peer_number);
    if (peer < 0) return {RemotePairChannel(rank, peer_number, sends), 0};
    return sends ? Seat{PairChannel(rank, peer), 0} : Seat{PairChannel(peer, rank), 1};
  }
  // True if the daemon moves its operations and decides: those that need another node, which pairs
  // of ranks of this node do not, and all of a device board.
  bool Remote(uint32_t channel) const {
    return shape_.device ||
           (shape_.spans_nodes() && (channel == 0 || channel >= remote_pairs_begin()));
  }
  // Both ends of a channel of a pair, by number.
  struct Pair {
    int source, destination;
    bool source_here, destination_here;
  };
  Pair PairOf(uint32_t channel) const;
  // The board's rank behind a channel's participant.
  int RankOf(uint32_t channel, int participant) const;
  // As what the participant takes part in the plan: its number, or for a pair 0 as source, 1 as
  // destination.
  int RoleOf(uint32_t channel, int participant) const;
  // Ranks in the plan.
  int PlanWorld(uint32_t channel) const { return channel == 0 ? shape_.world : 2; }

 private:
  recorder::CallNote* CallNotes(int rank) const;
  uint32_t remote_pairs_begin() const {
    return 1 + static_cast<uint32_t>(shape_.ranks) * static_cast<uint32_t>(shape_.ranks);
  }

  std::byte* base_ = nullptr;
  BoardShape shape_;
  uint32_t calls_kept_ = 0;
};

}  // namespace shunt::board
