#include "runtime/p2p/overlap.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/p2p/byte_ranges.h"
#include "runtime/p2p/cursor.h"
#include "runtime/p2p/disjoint.h"

namespace shunt::p2p {
namespace {

constexpr size_t kExtentsMax = size_t{1} << 22;
// A bit map is worth its zeroing up to so many bits for each id.
constexpr uint64_t kBitsPerId = 512;
constexpr uint64_t kSegmentPairsMax = 1 << 22;

// Where each region lies when all are put one behind the other.
class AddressSpace {
 public:
  absl::Status Add(absl::Span<const RegionExtent> regions) {
    regions_.insert(regions_.end(), regions.begin(), regions.end());
    std::sort(regions_.begin(), regions_.end(), [](const RegionExtent& a, const RegionExtent& b) {
      return std::tie(a.id, a.bytes) < std::tie(b.id, b.bytes);
    });
    begins_.clear();
    end_ = 0;
    for (size_t i = 0; i < regions_.size(); ++i) {
      // The two sides may believe in different sizes; the larger is the later one.
      const bool same = i > 0 && regions_[i].id == regions_[i - 1].id;
      begins_.push_back(same ? begins_.back() : end_);
      uint64_t end;
      if (__builtin_add_overflow(begins_.back(), regions_[i].bytes, &end)) {
        return absl::InvalidArgumentError("the regions have more than 2^64 bytes in all");
      }
      end_ = end;
    }
    return absl::OkStatus();
  }
  uint64_t BeginOf(uint64_t id) const { return begins_[IndexOf(id)]; }
  std::string Text(uint64_t at) const {
    size_t i = regions_.size() - 1;
    while (i > 0 && begins_[i] > at) --i;
    return absl::StrCat("region ", regions_[i].id, ", offset ", at - begins_[i]);
  }

 private:
  size_t IndexOf(uint64_t id) const {
    return std::lower_bound(regions_.begin(), regions_.end(), id,
                            [](const RegionExtent& r, uint64_t key) { return r.id < key; }) -
           regions_.begin();
  }

  std::vector<RegionExtent> regions_;
  std::vector<uint64_t> begins_;
  uint64_t end_ = 0;
};

// Calls body(span of ByteRange) with all pieces of a selection in turn, neighbours joined, until it
// returns false. Some at a time: what a body then does with each is a loop of its own.
template <typename Body>
void ForEachBatch(const Selection& selection, const AddressSpace& space, const Body& body) {
  std::vector<uint64_t> begins;
  for (const RegionExtent& region : selection.regions()) begins.push_back(space.BeginOf(region.id));
  std::array<ByteRange, 256> batch;
  Cursor cursor(selection, 0, selection.payload_bytes());
  while (cursor.extent().bytes != 0) {
    size_t count = 0;
    for (; count < batch.size() && cursor.extent().bytes != 0; ++count) {
      const Extent& extent = cursor.extent();
      const uint64_t begin = begins[extent.region] + extent.offset;
      batch[count] = {begin, begin + extent.bytes};
      cursor.Advance(extent.bytes);
    }
    if (!body(absl::MakeConstSpan(batch.data(), count))) return;
  }
}

absl::Status Summarise(const Selection& selection, const AddressSpace& space,
                       RangeSummary* summary) {
  size_t count = 0;
  ForEachBatch(selection, space, [&](absl::Span<const ByteRange> ranges) {
    for (const ByteRange& range : ranges) summary->Add(range);
    count += ranges.size();
    return count <= kExtentsMax;
  });
  if (count <= kExtentsMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("whether the pieces overlap can't be told without comparing more than ",
                   kExtentsMax, " of them one with another"));
}

// Adds them all; the begin of the first that was there already, in part or wholly.
std::optional<uint64_t> AddAll(const Selection& selection, const AddressSpace& space,
                               RangeBits* bits) {
  std::optional<uint64_t> twice;
  ForEachBatch(selection, space, [&](absl::Span<const ByteRange> ranges) {
    for (const ByteRange& range : ranges) {
      if (!bits->Add(range) && !twice.has_value()) twice = range.begin;
    }
    return true;
  });
  return twice;
}

std::vector<ByteRange> SortedRanges(const Selection& selection, const AddressSpace& space) {
  std::vector<ByteRange> all;
  ForEachBatch(selection, space, [&](absl::Span<const ByteRange> ranges) {
    all.insert(all.end(), ranges.begin(), ranges.end());
    return true;
  });
  SortByBegin(&all);
  return all;
}

// Segments of each set beside one another, by their first piece.
using Segments = std::vector<Selection::Segment>;
Segments BySet(const Selection& selection) {
  Segments segments = selection.segments();
  std::sort(segments.begin(), segments.end(), [](const auto& a, const auto& b) {
    return std::tie(a.set, a.first) < std::tie(b.set, b.first);
  });
  return segments;
}

bool Intersect(const Selection::Segment& a, const Selection::Segment& b) {
  return Intersect(Progression{a.first, a.count, a.step}, Progression{b.first, b.count, b.step});
}

uint64_t LastPiece(const Selection::Segment& s) { return s.first + (s.count - 1) * s.step; }

absl::Status TooManyPairs() {
  return absl::ResourceExhaustedError(
      absl::StrCat("the runs are interleaved: more than ", kSegmentPairsMax,
                   " pairs of them would have to be compared"));
}

std::string PieceText(const PreparedList& list, const Selection::Segment& s) {
  return absl::StrCat("the run of pieces ", list.first_piece(s.set) + s.first, " to ",
                      list.first_piece(s.set) + LastPiece(s), " in steps of ", s.step);
}

absl::Status CheckRuns(const Selection& selection) {
  if (selection.segments().size() == 1) return absl::OkStatus();
  const Segments segments = BySet(selection);
  uint64_t pairs = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    for (size_t k = i + 1; k < segments.size(); ++k) {
      const Selection::Segment &a = segments[i], &b = segments[k];
      if (b.set != a.set || b.first > LastPiece(a)) break;
      if (++pairs > kSegmentPairsMax) return TooManyPairs();
      if (Intersect(a, b)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the destination is written twice: ", PieceText(*selection.list(), a), " and ",
            PieceText(*selection.list(), b), " have a piece in common"));
      }
    }
  }
  return absl::OkStatus();
}

// A set of numbers between two bounds.
class Bits {
 public:
  Bits(uint64_t low, uint64_t high) : low_(low), words_((high - low) / 64 + 1) {}
  // False if it is there already.
  bool Add(uint64_t number) {
    const uint64_t at = number - low_;
    const uint64_t bit = uint64_t{1} << (at % 64);
    if ((words_[at / 64] & bit) != 0) return false;
    words_[at / 64] |= bit;
    return true;
  }
  bool Has(uint64_t number) const {
    const uint64_t at = number - low_;
    return number >= low_ && at / 64 < words_.size() && (words_[at / 64] >> (at % 64) & 1) != 0;
  }

 private:
  uint64_t low_;
  std::vector<uint64_t> words_;
};

bool Dense(uint64_t low, uint64_t high, uint64_t ids) { return (high - low) / kBitsPerId <= ids; }

absl::Status WrittenTwice(const Selection& selection, uint64_t id) {
  return absl::InvalidArgumentError(absl::StrCat("the destination is written twice: id ", id,
                                                 " of section \"",
                                                 selection.list()->section().name,
                                                 "\" is named more than once"));
}

// All ids, repeats included; at most kExtentsMax, or nothing.
std::optional<std::vector<uint64_t>> AllIds(const Selection& selection) {
  const IdShape& shape = selection.shape();
  if (shape.repeats > kExtentsMax / selection.ids()) return std::nullopt;
  std::vector<uint64_t> all;
  all.reserve(shape.repeats * selection.ids());
  for (uint64_t r = 0; r < shape.repeats; ++r) {
    for (uint64_t i = 0; i < selection.ids(); ++i) {
      all.push_back(selection.id(i) + r * shape.repeat_step);
    }
  }
  return all;
}

absl::Status CheckIds(const Selection& selection) {
  const auto [low, high] = selection.id_range();
  const IdShape& shape = selection.shape();
  const bool apart = shape.repeats == 1 || shape.repeat_step > high - low;
  if (apart && Dense(low, high, selection.ids())) {
    Bits seen(low, high);
    for (uint64_t i = 0; i < selection.ids(); ++i) {
      if (!seen.Add(selection.id(i))) return WrittenTwice(selection, selection.id(i));
    }
    return absl::OkStatus();
  }
  std::vector<uint64_t> all;
  if (apart) {
    for (uint64_t i = 0; i < selection.ids(); ++i) all.push_back(selection.id(i));
  } else if (auto ids = AllIds(selection); ids.has_value()) {
    all = *std::move(ids);
  } else {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kExtentsMax, " ids whose repeats interleave: expected repeats ",
                     "in steps of more than ", high - low));
  }
  std::sort(all.begin(), all.end());
  const auto twice = std::adjacent_find(all.begin(), all.end());
  return twice == all.end() ? absl::OkStatus() : WrittenTwice(selection, *twice);
}

bool ShareARegion(const Selection& a, const Selection& b) {
  auto i = a.regions().begin();
  auto k = b.regions().begin();
  while (i != a.regions().end() && k != b.regions().end()) {
    if (i->id == k->id) return true;
    i->id < k->id ? ++i : ++k;
  }
  return false;
}

absl::Status BothReadAndWritten(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("source and destination overlap: ", what, " is in both"));
}

// Of one disjoint list, where numbers tell: nothing if they don't.
std::optional<absl::Status> CheckSameList(const Selection& source, const Selection& destination) {
  const PreparedList& list = *source.list();
  if (source.form() != destination.form()) return std::nullopt;
  if (source.form() == Selection::Form::kRuns) {
    const Segments reads = BySet(source), writes = BySet(destination);
    uint64_t pairs = 0;
    size_t from = 0;
    for (const Selection::Segment& a : reads) {
      while (from < writes.size() && writes[from].set < a.set) ++from;
      for (size_t k = from; k < writes.size() && writes[k].set == a.set; ++k) {
        if (writes[k].first > LastPiece(a)) break;
        if (++pairs > kSegmentPairsMax) return TooManyPairs();
        if (Intersect(a, writes[k])) return BothReadAndWritten(PieceText(list, a));
      }
    }
    return absl::OkStatus();
  }
  const auto [low, high] = destination.id_range();
  if (source.shape().unit != destination.shape().unit || source.shape().repeats > 1 ||
      destination.shape().repeats > 1 || !Dense(low, high, destination.ids())) {
    return std::nullopt;
  }
  Bits written(low, high);
  for (uint64_t i = 0; i < destination.ids(); ++i) written.Add(destination.id(i));
  for (uint64_t i = 0; i < source.ids(); ++i) {
    if (written.Has(source.id(i))) return BothReadAndWritten(absl::StrCat("id ", source.id(i)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWrittenOnce(const Selection& destination) {
  if (destination.list() != nullptr && destination.list()->disjoint()) {
    return destination.form() == Selection::Form::kRuns ? CheckRuns(destination)
                                                        : CheckIds(destination);
  }
  AddressSpace space;
  SHUNT_RETURN_IF_ERROR(space.Add(destination.regions()));
  RangeSummary summary;
  SHUNT_RETURN_IF_ERROR(Summarise(destination, space, &summary));
  std::optional<uint64_t> twice;
  if (std::optional<RangeBits> bits = RangeBits::For(summary); bits.has_value()) {
    twice = AddAll(destination, space, &*bits);
  } else {
    const std::vector<ByteRange> ranges = SortedRanges(destination, space);
    if (const int64_t at = FindOverlap(ranges); at >= 0) twice = ranges[at + 1].begin;
  }
  if (!twice.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the destination is written twice: two of its pieces hold bytes behind ",
                   space.Text(*twice)));
}

absl::Status CheckApart(const Selection& source, const Selection& destination) {
  if (source.space() != destination.space() || !ShareARegion(source, destination)) {
    return absl::OkStatus();
  }
  if (source.list() != nullptr && destination.list() != nullptr) {
    if (source.list() != destination.list()) {
      if (source.list()->SurelyApartFrom(*destination.list())) return absl::OkStatus();
    } else if (source.list()->disjoint()) {
      if (auto told = CheckSameList(source, destination); told.has_value()) return *std::move(told);
    }
  }
  AddressSpace space;
  SHUNT_RETURN_IF_ERROR(space.Add(source.regions()));
  SHUNT_RETURN_IF_ERROR(space.Add(destination.regions()));
  RangeSummary summary;
  SHUNT_RETURN_IF_ERROR(Summarise(source, space, &summary));
  SHUNT_RETURN_IF_ERROR(Summarise(destination, space, &summary));
  std::optional<uint64_t> common;
  if (std::optional<RangeBits> bits = RangeBits::For(summary); bits.has_value()) {
    AddAll(source, space, &*bits);
    common = AddAll(destination, space, &*bits);
  } else {
    common = FindOverlap(SortedRanges(source, space), SortedRanges(destination, space));
  }
  if (!common.has_value()) return absl::OkStatus();
  return BothReadAndWritten(absl::StrCat("a byte behind ", space.Text(*common)));
}

}  // namespace shunt::p2p
