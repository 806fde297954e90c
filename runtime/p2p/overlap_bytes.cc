#include "runtime/p2p/overlap_bytes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/p2p/byte_ranges.h"
#include "runtime/p2p/cursor.h"

namespace shunt::p2p {
namespace {

constexpr size_t kExtentsMax = size_t{1} << 22;

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

// Calls body(span of ByteRange) with all pieces of a selection in turn until it returns false. Some
// at a time: what a body then does with each is a loop of its own.
template <typename Body>
void ForEachBatch(const Selection& selection, const AddressSpace& space, const Body& body) {
  std::vector<uint64_t> begins;
  for (const RegionExtent& region : selection.regions()) begins.push_back(space.BeginOf(region.id));
  std::array<ByteRange, 256> batch;
  // Raw descriptors are at hand: joining neighbours would cost more than it saves.
  for (uint64_t i = 0; i < selection.raw_pieces();) {
    size_t count = 0;
    for (; count < batch.size() && i < selection.raw_pieces(); ++count, ++i) {
      const Selection::RawPiece piece = selection.raw_piece(i);
      const uint64_t begin = begins[piece.region] + piece.offset;
      batch[count] = {begin, begin + piece.bytes};
    }
    if (!body(absl::MakeConstSpan(batch.data(), count))) return;
  }
  if (selection.form() == Selection::Form::kRaw) return;
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
  const auto too_many = [] {
    return absl::ResourceExhaustedError(
        absl::StrCat("whether the pieces overlap can't be told without comparing more than ",
                     kExtentsMax, " of them one with another"));
  };
  // Neighbours count as one, but they have to be walked.
  if (selection.ids() != 0 && selection.shape().repeats > kExtentsMax / selection.ids()) {
    return too_many();
  }
  size_t count = 0;
  ForEachBatch(selection, space, [&](absl::Span<const ByteRange> ranges) {
    for (const ByteRange& range : ranges) summary->Add(range);
    count += ranges.size();
    return count <= kExtentsMax;
  });
  return count <= kExtentsMax ? absl::OkStatus() : too_many();
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

// Where a byte is written twice, or written and read.
struct Found {
  std::optional<uint64_t> twice;
  std::optional<uint64_t> common;
};

Found FindByBits(const Selection* source, const Selection& destination, const AddressSpace& space,
                 RangeBits* bits) {
  Found found;
  ForEachBatch(destination, space, [&](absl::Span<const ByteRange> ranges) {
    for (const ByteRange& range : ranges) {
      if (!bits->Add(range)) found.twice = range.begin;
    }
    return !found.twice.has_value();
  });
  if (source == nullptr || found.twice.has_value()) return found;
  ForEachBatch(*source, space, [&](absl::Span<const ByteRange> ranges) {
    for (const ByteRange& range : ranges) {
      if (bits->Has(range)) found.common = range.begin;
    }
    return !found.common.has_value();
  });
  return found;
}

Found FindBySorting(const Selection* source, const Selection& destination,
                    const AddressSpace& space) {
  Found found;
  const std::vector<ByteRange> writes = SortedRanges(destination, space);
  if (const int64_t at = FindOverlap(writes); at >= 0) {
    found.twice = writes[at + 1].begin;
  } else if (source != nullptr) {
    found.common = FindOverlap(SortedRanges(*source, space), writes);
  }
  return found;
}

}  // namespace

absl::Status CheckBytes(const Selection* source, const Selection& destination) {
  AddressSpace space;
  RangeSummary summary;
  for (const Selection* side : {source, &destination}) {
    if (side != nullptr) SHUNT_RETURN_IF_ERROR(space.Add(side->regions()));
  }
  for (const Selection* side : {source, &destination}) {
    if (side != nullptr) SHUNT_RETURN_IF_ERROR(Summarise(*side, space, &summary));
  }
  std::optional<RangeBits> bits = RangeBits::For(summary);
  const Found found = bits.has_value() ? FindByBits(source, destination, space, &*bits)
                                       : FindBySorting(source, destination, space);
  if (found.twice.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the destination is written twice: two of its pieces hold bytes behind ",
                     space.Text(*found.twice)));
  }
  if (found.common.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("source and destination overlap: a byte behind ",
                                                   space.Text(*found.common), " is in both"));
  }
  return absl::OkStatus();
}

}  // namespace shunt::p2p
