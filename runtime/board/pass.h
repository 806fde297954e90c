// The one pass over all participants' memory, cut into chunks that any waiting rank and any daemon
// worker may claim. One Pass is one process's view of one operation; the claims and counts are
// shared on the board.
//
// An operation whose buffers all lie in regions has one window. Where some rank stages memory from
// outside regions, the element range of every block is cut into windows that fit the staging
// buffers; two windows are in the works at a time, and a window may run once every stager has
// copied its part in (and has taken the window before the last one out).
//
// Claims: each lane (a slice of a window's chunks) has a word (sequence, window, next chunk) that
// only moves forward by compare-and-swap, so a late worker of an old operation can never take a
// chunk of a new one. Workers start on lanes of their own, for the caches, and help on the others
// after.
#pragma once

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "runtime/board/layout.h"
#include "runtime/board/member.h"

namespace shunt::board {

class Pass {
 public:
  // A copy of what was posted, taken once, so that nobody can change it after it was checked.
  using Posts = absl::InlinedVector<PostBody, 8>;

  // Reads the posts of a complete operation (and the tables of an all_to_all_v), checks them and
  // finds all memory. INVALID_ARGUMENT names the rank whose post is bad, FAILED_PRECONDITION the
  // pair of ranks whose counts differ. With `only_output_of` >= 0 the operation is over: memory
  // that can't be found any more is left out, and Work must not be called.
  absl::Status Build(const Board& board, const Channel& channel, uint64_t seq,
                     RegionResolver& resolver, int only_output_of = -1);

  // Runs chunks, starting with lane `first_lane`, until none can be claimed at present or
  // `max_chunks` have run. True if it ran any.
  bool Work(int first_lane, uint32_t max_chunks = ~0u);
  bool AllDone() const;
  bool WindowDone(uint32_t window) const;

  int participants() const { return participants_; }
  bool staged() const { return staged_; }
  uint32_t windows() const { return windows_; }
  // Where the elements of `window` lie in participant p's buffers, for its staging copies.
  uint64_t window_elements() const { return window_elements_; }
  uint64_t WindowBegin(uint32_t window) const { return window * window_elements_; }
  uint64_t WindowLength(uint32_t window) const;
  size_t staging_window_bytes() const { return channel_.staging_window_bytes(); }
  const CollectiveSpec& spec() const { return spec_; }
  // The staging buffer from which participant p copies its output: where all ranks get the same
  // bytes, one rank's buffer serves all who stage.
  const std::byte* StagedOutput(int p) const {
    return buffers_[shared_output_ < 0 ? p : shared_output_].out.base;
  }
  // False while others copy their output from p's staging buffer.
  bool OutputTakenFrom(int p) const;
  // For the copies from staging buffers, whose destination nobody reads soon.
  StorePolicy store() const {
    return plain_eighths_ < 8 ? StorePolicy::kStreaming : StorePolicy::kTemporal;
  }
  const VRow* row(int p) const { return tables_.data() + static_cast<size_t>(p) * participants_; }

 private:
  struct Side {
    std::byte* base = nullptr;
    Place place = Place::kNone;
    uint64_t bytes = 0;
  };
  struct Buffers {
    Side in, out;
  };

  absl::Status Locate(const Board& board, int p, RegionResolver& resolver);
  absl::Status CheckOverlap(const Board& board) const;
  absl::Status CheckTables(const Board& board) const;
  void CutIntoChunks();
  void ChooseStores(uint64_t step_bytes);
  bool WindowReady(uint32_t window) const;
  bool Claim(int lane, uint32_t* window, uint32_t* chunk);
  void AddDone(uint32_t window, uint32_t chunks);
  void Run(uint32_t window, uint32_t chunk) const;
  std::byte* Address(const Side& side, uint64_t block_begin, uint32_t block, uint32_t window,
                     uint64_t element) const;
  uint32_t LaneBegin(int lane) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(chunks_) * lane / lanes_);
  }

  Channel channel_;
  uint64_t seq_ = 0;
  int participants_ = 0;
  int lanes_ = 1;
  CollectiveSpec spec_{};
  Posts posts_;
  absl::InlinedVector<Buffers, 8> buffers_;
  absl::InlinedVector<Scalar, 8> scalars_;
  absl::InlinedVector<VRow, 1> tables_;  // all_to_all_v: participants² rows
  bool staged_ = false;
  int shared_output_ =
      -1;  // the participant whose staging buffer takes the output for all who stage
  size_t element_bytes_ = 1;
  uint64_t elements_ = 0;         // of a block; all_to_all_v: of the longest
  uint64_t window_elements_ = 0;  // of a block in a full window
  uint64_t chunk_elements_ = 0;
  uint32_t windows_ = 0;
  uint32_t steps_ = 0;
  uint32_t chunks_per_step_ = 0;
  uint32_t chunks_ = 0;         // of a window
  uint32_t plain_eighths_ = 8;  // so many of eight chunks are written through the caches
};

// Part of posting: makes the marks that `participant` keeps in the operation's slot young. Claims
// and counts carry the low bits of a sequence, and those of an operation a few million calls ago
// would look like this one's.
void RenewMarks(const Channel& channel, uint64_t seq, int participant);

// Copies one window of a participant's input from its own memory into its staging buffer (two
// windows), or of its output from a staging buffer to its own memory.
void CopyWindowIn(const Pass& pass, int participant, uint32_t window, const std::byte* in,
                  std::byte* staging);
void CopyWindowOut(const Pass& pass, int participant, uint32_t window, const std::byte* staging,
                   std::byte* out);

}  // namespace shunt::board
