// Who has posted, and what: the meeting of the ranks' calls.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/board/layout.h"
#include "runtime/collectives/plan/local_plan.h"

namespace shunt::board {

enum class Arrival {
  kWaiting,   // somebody has not posted yet
  kComplete,  // all have posted the same call
  kMismatch,  // two posts differ: the operation can only fail
  kSealed,    // it has failed: somebody's post was sealed before it came
};

inline uint64_t PostedWord(uint64_t seq) { return seq << 2 | kPosted; }
inline uint64_t SealedWord(uint64_t seq) { return seq << 2 | kSealed; }

// Publishes the post whose body is written. False if it was sealed first. A full memory barrier.
inline bool Publish(Post& post, uint64_t seq) {
  uint64_t word = post.word.load(std::memory_order_relaxed);
  if (word == SealedWord(seq)) return false;
  return post.word.compare_exchange_strong(word, PostedWord(seq), std::memory_order_seq_cst);
}

// True if both are the same collective call, or a send and its receive.
bool SameCall(uint32_t channel, const PostBody& a, const PostBody& b);

// The outcome in a fate word, 0 while there is none. Whatever else a hostile rank writes is none.
inline uint64_t OutcomeIn(uint64_t word, uint64_t seq) {
  const uint64_t outcome = word & 3;
  return word >> 2 == seq && (outcome == kSucceeded || outcome == kFailed) ? outcome : 0;
}

// Decides the operation's outcome, unless it has one or its slot serves a later operation; true if
// this call decided it.
inline bool Settle(const Channel& channel, uint64_t seq, Outcome outcome) {
  std::atomic<uint64_t>& word = channel.fate(seq).outcome;
  uint64_t seen = word.load(std::memory_order_acquire);
  while (seen >> 2 <= seq && OutcomeIn(seen, seq) == 0) {
    if (word.compare_exchange_weak(seen, seq << 2 | outcome, std::memory_order_seq_cst))
      return true;
  }
  return false;
}

// Watches the posts of one operation from participant `me`'s side. Each call continues where the
// last one stopped.
class ArrivalScan {
 public:
  Arrival Check(const Channel& channel, uint64_t seq, int me, const PostBody& mine) {
    for (; next_ < channel.participants(); ++next_) {
      if (next_ == me) continue;
      const Post& post = channel.post(seq, next_);
      // With Publish, so ordered that of two ranks which come last at least one sees both posts.
      const uint64_t word = post.word.load(std::memory_order_seq_cst);
      if (word != PostedWord(seq))
        return word == SealedWord(seq) ? Arrival::kSealed : Arrival::kWaiting;
      if (!SameCall(channel.id(), mine, post.body)) {
        culprit_ = next_;
        return Arrival::kMismatch;
      }
      flags_all_ &= post.body.flags;
      flags_any_ |= post.body.flags;
      if (OffBoard(post.body)) off_board_ = true;
    }
    return Arrival::kComplete;
  }

  // After kWaiting: a participant that has not posted.
  int missing() const { return next_; }
  // After kMismatch: the participant whose call differs.
  int culprit() const { return culprit_; }
  // Over the other participants' posts, after kComplete.
  uint8_t flags_all() const { return flags_all_; }
  uint8_t flags_any() const { return flags_any_; }
  bool off_board() const { return off_board_; }

  // True if any of its buffers lies outside the board.
  static bool OffBoard(const PostBody& body) {
    return body.in_place_kind == static_cast<uint8_t>(Place::kRegion) ||
           body.in_place_kind == static_cast<uint8_t>(Place::kStaged) ||
           body.out_place_kind == static_cast<uint8_t>(Place::kRegion) ||
           body.out_place_kind == static_cast<uint8_t>(Place::kStaged);
  }

 private:
  int next_ = 0;
  int culprit_ = -1;
  uint8_t flags_all_ = 0xff;
  uint8_t flags_any_ = 0;
  bool off_board_ = false;
};

// A posted participant whose call differs from `mine`, wherever it stands in the order; -1 if none.
int FindMismatch(const Channel& channel, uint64_t seq, int me, const PostBody& mine);

// Seals the posts of all who have not come. True if the operation has thereby failed (or had
// before), false if all had posted.
bool SealAbsent(const Channel& channel, uint64_t seq);

// References and inline bytes share a post's line: a small input lies in it where no reference is
// needed.
inline bool InputInLine(const PostBody& body, uint64_t input_bytes) {
  const auto out = static_cast<Place>(body.out_place_kind);
  return body.in_place_kind == static_cast<uint8_t>(Place::kSlot) &&
         input_bytes <= kLineInlineBytes && out != Place::kRegion && out != Place::kStaged;
}

// What the participants agreed on, as the plans see it (a receive is its send, seen from the other
// side).
CollectiveSpec SpecOf(uint32_t channel, const PostBody& body);

// "'name': rank 0 (pid 1) called …, rank 1 (pid 2) called …".
std::string MismatchText(const Board& board, const Channel& channel, uint64_t seq, int a,
                         const PostBody& a_body, int b);
// True if the rank will never post again: it has left, or its process is gone.
inline bool Gone(const Board& board, int rank) {
  return board.row(rank).dead.load(std::memory_order_acquire) != 0;
}
// "…: rank 2 (pid 7) has left; its last call was …".
std::string LeftText(const Board& board, const Channel& channel, uint64_t seq,
                     const PostBody& waiting, int rank);
// Who of the operation is missing and what each called last; `waited_ns` < 0 if unknown. Call after
// SealAbsent.
std::string AbsentText(const Board& board, const Channel& channel, uint64_t seq, int waiter,
                       const PostBody& mine, int64_t waited_ns, int* first_absent);

}  // namespace shunt::board
