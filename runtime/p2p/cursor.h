// Walks a selection from any byte of its payload on, one contiguous extent after the other.
#pragma once

#include <cstdint>

#include "runtime/p2p/selection.h"

namespace shunt::p2p {

struct Extent {
  uint32_t region = 0;  // an index into the selection's regions()
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Nothing is listed: pieces are located as they are come to. The selection must outlive it. Copies
// are cheap. One thread.
class Cursor {
 public:
  // For payload bytes [begin, begin + bytes), which must lie in the selection. Time: O(1) for ids
  // into pieces of one length, O(log n) otherwise.
  Cursor(const Selection& selection, uint64_t begin, uint64_t bytes);

  // Where the next payload bytes lie; neighbours that are contiguous are one extent. Its `bytes`
  // are 0 at the end only. Take its fields one by one, not a copy: see cursor.cc.
  const Extent& extent() const { return extent_; }
  // Moves on by `bytes`, at most extent().bytes.
  void Advance(uint64_t bytes) {
    extent_.offset += bytes;
    extent_.bytes -= bytes;
    if (extent_.bytes == 0) Load();
  }

 private:
  void Seek(uint64_t begin);
  void SeekRuns(uint64_t begin);
  void SeekIds(uint64_t begin);
  void SeekRaw(uint64_t begin);
  uint64_t TakeMark(uint64_t* begin) const;
  void Load();
  template <Selection::Form kForm>
  void LoadAs();
  template <Selection::Form kForm>
  Extent Fetch();
  // Piece `number` of a set, and those behind it, `most` at most: as many as are contiguous.
  uint64_t Locate(const Geometry& geometry, uint64_t number, uint64_t most);

  const Selection* selection_;
  Extent extent_;
  Extent next_;              // already located, behind extent_
  uint64_t left_;            // payload bytes that are not located yet
  uint64_t index_ = 0;       // segment, id or raw piece
  uint64_t piece_ = 0;       // in the segment, or of those that the id names
  uint64_t skip_ = 0;        // bytes of the first piece that come before
  uint64_t repeat_add_ = 0;  // to each id
  // The last piece that was located, and how many follow in steps of one stride: small pieces, as
  // the heads of a token are, need no division each.
  Extent located_;
  uint64_t row_left_ = 0;
  uint64_t row_stride_ = 0;
};

}  // namespace shunt::p2p
