// One rank's call in flight: a small state machine, driven by whoever waits. Internal to member.cc.
//
//   arriving ──all posts on the board──────────────────────────────► finish from the board
//      │
//      └─some buffer off the board─► ready ─earlier operations done─► running ─► all chunks done ─►
//      finish
//
// Any state may end in failure; arrival.h and Fate say who decides that.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "runtime/board/arrival.h"
#include "runtime/board/layout.h"
#include "runtime/board/member.h"
#include "runtime/board/pass.h"
#include "runtime/board/post.h"

namespace shunt::board {

class Operation {
 public:
  Operation(const Board& board, int rank, const Call& call, const Channel& channel, int participant)
      : board_(board), channel_(channel), call_(call), rank_(rank), me_(participant) {}
  Operation(const Operation&) = delete;

  enum class Step { kStalled, kMoved, kEnded };
  // Does what can be done now, at most `max_chunks` of the pass; never blocks. One thread at a time
  // (see TryEnter).
  Step Drive(MemberHost& host, uint32_t max_chunks = ~0u);
  // The deadline has passed: ends the operation, unless it has just succeeded.
  Step Expire(MemberHost& host);
  // The operation can't go on; `text` goes into the failure record unless there is one.
  // The daemon hears of it: it may be seeing other operations of the communicator through.
  Step Fail(MemberHost& host, FailureReason reason, int rank, std::string_view text);

  // Writes the post (its places are chosen) and publishes it; false if the operation has failed
  // before.
  bool Post(uint64_t seq, uint8_t flags);

  // For the recorder: its caller waits for it, or does not any more.
  void NoteWaits(bool waits) {
    if (waits_ == waits) return;
    waits_ = waits;
    board::NoteWaits(board_, channel_, seq_, me_, body, waits, note_);
  }

  bool TryEnter() { return !busy_.exchange(true, std::memory_order_acquire); }
  void Leave() { busy_.store(false, std::memory_order_release); }

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  const absl::Status& outcome() const { return outcome_; }
  bool served() const { return (body.flags & kServed) != 0; }
  const Channel& channel() const { return channel_; }
  uint64_t seq() const { return seq_; }
  const Call& call() const { return call_; }
  int participant() const { return me_; }
  // After success: every participant had finished its earlier operations when it posted.
  bool all_were_done_before() const {
    return (scan_.flags_all() & body.flags & kPriorComplete) != 0;
  }
  // True if some rank of this node has not called yet.
  bool LacksLocalRank() const;
  bool UsesRegion(uint64_t region) const;
  std::string Text() const;
  // What it waits for at present.
  std::string PendingText() const;

  PostBody body{};  // places and references: set by the member before Post
  std::byte* staging_in =
      nullptr;  // set if the input is kStaged; the channel's operations use it in turn
  // Copies of buffers outside regions, where the communicator spans nodes; the member's.
  std::byte* copy_in = nullptr;
  std::byte* copy_out = nullptr;
  uint64_t copy_out_bytes = 0;
  uint64_t bytes = 0;  // of the larger of its buffers; set by the member
  bool counts = true;
  bool owner_driven = false;  // only the thread that runs it may drive it
  int64_t started_ns = 0;

 private:
  // In the rank's ring of calls: it has ended.
  void NoteEnd(bool succeeded);
  Step Arriving(MemberHost& host);
  Step Ready(MemberHost& host);
  Step Running(MemberHost& host, uint32_t max_chunks);
  Step FinishFromBoard(MemberHost& host);
  Step TakeFromSlot();
  Step Succeed();
  Step Failed(absl::Status status);
  // Decides the operation's fate as failed; true if it is, false if it has succeeded.
  bool DecideFailed();
  bool PriorOperationsDone() const;
  bool StageIn();
  bool StageOut();
  bool Staged(uint8_t kind) const { return kind == static_cast<uint8_t>(Place::kStaged); }
  uint64_t OutcomeSeen() const;
  bool AnyServed() const { return ((scan_.flags_any() | body.flags) & kServed) != 0; }

  enum class Phase : uint8_t { kArriving, kReady, kRunning };

  Board board_;
  Channel channel_;
  Call call_;
  uint64_t seq_ = 0;
  int rank_;
  int me_;
  Phase phase_ = Phase::kArriving;
  bool first_look_ = true;
  ArrivalScan scan_;
  std::optional<Pass> pass_;
  std::atomic<bool> waits_{false};
  uint64_t note_ = 0;  // its number in the rank's ring of calls; 0: none
  uint32_t windows_in_ = 0;
  uint32_t windows_out_ = 0;
  absl::Status outcome_;
  std::atomic<bool> busy_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace shunt::board
