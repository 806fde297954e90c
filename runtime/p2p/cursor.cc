#include "runtime/p2p/cursor.h"

#include <algorithm>

namespace shunt::p2p {

Cursor::Cursor(const Selection& selection, uint64_t begin, uint64_t bytes)
    : selection_(&selection), left_(bytes) {
  if (left_ > 0) Seek(begin);
  next_ = Fetch();
  Load();
}

void Cursor::Seek(uint64_t begin) {
  const Selection& s = *selection_;
  const auto after = [&](const auto& parts) {
    const auto at = std::upper_bound(
        parts.begin(), parts.end(), begin,
        [](uint64_t offset, const auto& part) { return offset < part.payload_begin; });
    return static_cast<uint64_t>(at - parts.begin()) - 1;
  };
  switch (s.form()) {
    case Selection::Form::kRaw:
      index_ = after(s.raw_pieces());
      skip_ = begin - s.raw_pieces()[index_].payload_begin;
      return;
    case Selection::Form::kRuns: {
      index_ = after(s.segments());
      const Selection::Segment& segment = s.segments()[index_];
      const uint64_t length = s.list()->geometry(segment.set).length();
      piece_ = (begin - segment.payload_begin) / length;
      skip_ = (begin - segment.payload_begin) % length;
      return;
    }
    case Selection::Form::kIds:
      break;
  }
  const uint64_t length = s.list()->piece_bytes();
  uint64_t number;  // of the id, repeats counted
  if (length != 0) {
    number = begin / (s.shape().unit * length);
    piece_ = begin / length % s.shape().unit;
    skip_ = begin % length;
  } else {
    const std::vector<uint64_t>& marks = s.marks();
    const auto mark = std::upper_bound(marks.begin(), marks.end(), begin) - marks.begin() - 1;
    number = mark * Selection::kMarkIds;
    uint64_t rest = begin - marks[mark];
    const auto id_of = [&] {
      return s.id(number % s.ids()) + number / s.ids() * s.shape().repeat_step;
    };
    for (uint64_t bytes; (bytes = s.UnitBytes(id_of())) <= rest; ++number) rest -= bytes;
    const PreparedList& list = *s.list();
    uint64_t piece = id_of() * s.shape().unit;
    for (size_t set = list.SetOf(piece);; ++set) {
      const uint64_t in_set = list.first_piece(set + 1) - piece;
      const uint64_t whole = std::min(in_set, rest / list.geometry(set).length());
      rest -= whole * list.geometry(set).length();
      piece += whole;
      if (whole < in_set) break;
    }
    piece_ = piece - id_of() * s.shape().unit;
    skip_ = rest;
  }
  index_ = number % s.ids();
  repeat_add_ = number / s.ids() * s.shape().repeat_step;
}

// The next extent as one list entry gives it; empty at the end.
Extent Cursor::Fetch() {
  if (left_ == 0) return {};
  const Selection& s = *selection_;
  Extent extent;
  if (s.form() == Selection::Form::kRaw) {
    const Selection::RawPiece& piece = s.raw_pieces()[index_++];
    extent = {piece.region, piece.offset, piece.bytes};
  } else if (s.form() == Selection::Form::kRuns) {
    const Selection::Segment& segment = s.segments()[index_];
    const Geometry& geometry = s.list()->geometry(segment.set);
    uint64_t count;
    extent.region = geometry.region();
    extent.offset = geometry.Locate(segment.first + piece_ * segment.step, &count);
    count = segment.step == 1 ? std::min(count, segment.count - piece_) : 1;
    extent.bytes = count * geometry.length();
    if ((piece_ += count) == segment.count) {
      piece_ = 0;
      ++index_;
    }
  } else {
    const PreparedList& list = *s.list();
    const uint64_t piece = (s.id(index_) + repeat_add_) * s.shape().unit + piece_;
    const size_t set = list.SetOf(piece);
    const Geometry& geometry = list.geometry(set);
    uint64_t count;
    extent.region = geometry.region();
    extent.offset = geometry.Locate(piece - list.first_piece(set), &count);
    count = std::min(count, s.shape().unit - piece_);
    extent.bytes = count * geometry.length();
    if ((piece_ += count) == s.shape().unit) {
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

void Cursor::Load() {
  extent_ = next_;
  if (extent_.bytes == 0) return;
  next_ = Fetch();
  while (next_.bytes != 0 && next_.region == extent_.region &&
         next_.offset == extent_.offset + extent_.bytes) {
    extent_.bytes += next_.bytes;
    next_ = Fetch();
  }
}

}  // namespace shunt::p2p
