#include "runtime/p2p/cursor.h"

#include <algorithm>

namespace shunt::p2p {

Cursor::Cursor(const Selection& selection, uint64_t begin, uint64_t bytes)
    : selection_(&selection), left_(bytes) {
  if (left_ > 0) Seek(begin);
  // Of no region, so that nothing is joined to it.
  next_ = {UINT32_MAX, 0, 0};
  Load();
  Load();
}

void Cursor::Seek(uint64_t begin) {
  switch (selection_->form()) {
    case Selection::Form::kRuns:
      return SeekRuns(begin);
    case Selection::Form::kIds:
      return SeekIds(begin);
    case Selection::Form::kRaw:
      return SeekRaw(begin);
  }
}

void Cursor::SeekRuns(uint64_t begin) {
  const std::vector<Selection::Segment>& segments = selection_->segments();
  const auto after = std::upper_bound(
      segments.begin(), segments.end(), begin,
      [](uint64_t offset, const Selection::Segment& s) { return offset < s.payload_begin; });
  index_ = after - segments.begin() - 1;
  const Selection::Segment& segment = segments[index_];
  const uint64_t length = selection_->list()->geometry(segment.set).length();
  piece_ = (begin - segment.payload_begin) / length;
  skip_ = (begin - segment.payload_begin) % length;
}

// The last mark that is not behind `begin`, as the number of its id or piece; takes what lies
// before it off `begin`.
uint64_t Cursor::TakeMark(uint64_t* begin) const {
  const std::vector<uint64_t>& marks = selection_->marks();
  const auto after = std::upper_bound(marks.begin(), marks.end(), *begin);
  *begin -= *(after - 1);
  return (after - marks.begin() - 1) * Selection::kMarkEvery;
}

void Cursor::SeekRaw(uint64_t begin) {
  const Selection& s = *selection_;
  if (const uint64_t length = s.raw_bytes(); length != 0) {
    index_ = begin / length;
    skip_ = begin % length;
    return;
  }
  index_ = TakeMark(&begin);
  for (; s.raw_piece(index_).bytes <= begin; ++index_) begin -= s.raw_piece(index_).bytes;
  skip_ = begin;
}

void Cursor::SeekIds(uint64_t begin) {
  const Selection& s = *selection_;
  const PreparedList& list = *s.list();
  uint64_t number;  // of the id, repeats counted
  if (const uint64_t length = list.piece_bytes(); length != 0) {
    number = begin / (s.shape().unit * length);
    piece_ = begin / length % s.shape().unit;
    skip_ = begin % length;
  } else {
    number = TakeMark(&begin);
    const auto id_of = [&] {
      return s.id(number % s.ids()) + number / s.ids() * s.shape().repeat_step;
    };
    for (uint64_t bytes; (bytes = s.UnitBytes(id_of())) <= begin; ++number) begin -= bytes;
    const uint64_t first = id_of() * s.shape().unit;
    uint64_t piece = first;
    for (size_t set = list.SetOf(piece);; ++set) {
      const uint64_t length = list.geometry(set).length();
      const uint64_t in_set = list.first_piece(set + 1) - piece;
      const uint64_t whole = std::min(in_set, begin / length);
      begin -= whole * length;
      piece += whole;
      if (whole < in_set) break;
    }
    piece_ = piece - first;
    skip_ = begin;
  }
  index_ = number % s.ids();
  repeat_add_ = number / s.ids() * s.shape().repeat_step;
}

uint64_t Cursor::Locate(const Geometry& geometry, uint64_t number, uint64_t most) {
  uint64_t count;
  located_.region = geometry.region();
  located_.offset = geometry.Locate(number, &count);
  count = std::min(count, most);
  located_.bytes = count * geometry.length();
  if (most > 1) {
    const Geometry::Row row = geometry.RowAt(number);
    row_left_ = std::min(row.left, most - 1);
    row_stride_ = row.stride;
  }
  return count;
}

// The next extent as one list entry gives it; empty at the end.
template <Selection::Form kForm>
inline Extent Cursor::Fetch() {
  if (left_ == 0) return {};
  const Selection& s = *selection_;
  Extent extent;
  if constexpr (kForm == Selection::Form::kRaw) {
    const Selection::RawPiece piece = s.raw_piece(index_++);
    extent = {piece.region, piece.offset, piece.bytes};
  } else {
    uint64_t count = 1;
    if (row_left_ > 0) {
      --row_left_;
      located_.offset += row_stride_;
    } else if constexpr (kForm == Selection::Form::kRuns) {
      const Selection::Segment& segment = s.segments()[index_];
      count = Locate(s.list()->geometry(segment.set), segment.first + piece_ * segment.step,
                     segment.step == 1 ? segment.count - piece_ : 1);
    } else {
      const PreparedList& list = *s.list();
      const uint64_t piece = (s.id(index_) + repeat_add_) * s.shape().unit + piece_;
      const size_t set = list.SetOf(piece);
      count = Locate(list.geometry(set), piece - list.first_piece(set), s.shape().unit - piece_);
    }
    extent.region = located_.region;
    extent.offset = located_.offset;
    extent.bytes = located_.bytes;
    piece_ += count;
    if constexpr (kForm == Selection::Form::kRuns) {
      if (piece_ == s.segments()[index_].count) {
        piece_ = 0;
        ++index_;
      }
    } else if (piece_ == s.shape().unit) {
      piece_ = 0;
      if (++index_ == s.ids()) {
        index_ = 0;
        repeat_add_ += s.shape().repeat_step;
      }
    }
  }
  extent.offset += skip_;
  extent.bytes = std::min(extent.bytes - skip_, left_);
  skip_ = 0;
  left_ -= extent.bytes;
  return extent;
}

template <Selection::Form kForm>
void Cursor::LoadAs() {
  // Field by field: an Extent that was just written so can't be read in one wide load without
  // waiting for its stores, which is most of what a piece costs here.
  const uint32_t region = next_.region;
  const uint64_t offset = next_.offset;
  uint64_t bytes = next_.bytes;
  Extent next = Fetch<kForm>();
  while (next.bytes != 0 && next.region == region && next.offset == offset + bytes) {
    bytes += next.bytes;
    next = Fetch<kForm>();
  }
  extent_.region = region;
  extent_.offset = offset;
  extent_.bytes = bytes;
  next_.region = next.region;
  next_.offset = next.offset;
  next_.bytes = next.bytes;
}

void Cursor::Load() {
  switch (selection_->form()) {
    case Selection::Form::kRuns:
      return LoadAs<Selection::Form::kRuns>();
    case Selection::Form::kIds:
      return LoadAs<Selection::Form::kIds>();
    case Selection::Form::kRaw:
      return LoadAs<Selection::Form::kRaw>();
  }
}

}  // namespace shunt::p2p
