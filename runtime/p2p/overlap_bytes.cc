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

}  // namespace

absl::Status CheckBytesOnce(const Selection& destination) {
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

absl::Status CheckBytesApart(const Selection& source, const Selection& destination) {
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
  return absl::InvalidArgumentError(absl::StrCat("source and destination overlap: a byte behind ",
                                                 space.Text(*common), " is in both"));
}

}  // namespace shunt::p2p
