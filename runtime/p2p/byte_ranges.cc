#include "runtime/p2p/byte_ranges.h"

#include <algorithm>
#include <array>
#include <utility>

namespace shunt::p2p {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;
// Below it std::sort is as fast, and asks for no second array.
constexpr size_t kRadixMin = 256;

// Zeroing so many bits costs less than sorting one range, as does setting so many.
constexpr uint64_t kBitsPerRange = 512;
constexpr uint64_t kSetBitsPerRange = 32;

}  // namespace

void SortByBegin(std::vector<ByteRange>* ranges) {
  const auto before = [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; };
  if (std::is_sorted(ranges->begin(), ranges->end(), before)) return;
  if (ranges->size() < kRadixMin) return std::sort(ranges->begin(), ranges->end(), before);
  uint64_t differ = 0;
  for (const ByteRange& range : *ranges) differ |= range.begin ^ ranges->front().begin;
  std::vector<ByteRange> other(ranges->size());
  for (int shift = 0; shift < 64 && differ >> shift != 0; shift += kDigitBits) {
    // Low bits are alike where all begin at multiples of a page.
    if (const int zeros = __builtin_ctzll(differ >> shift); zeros > 0) shift += zeros;
    std::array<size_t, kDigits> at{};
    for (const ByteRange& range : *ranges) ++at[range.begin >> shift & (kDigits - 1)];
    size_t sum = 0;
    for (size_t& count : at) sum += std::exchange(count, sum);
    for (const ByteRange& range : *ranges) {
      other[at[range.begin >> shift & (kDigits - 1)]++] = range;
    }
    ranges->swap(other);
  }
}

int64_t FindOverlap(const std::vector<ByteRange>& sorted) {
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].begin < sorted[i - 1].end) return static_cast<int64_t>(i) - 1;
  }
  return -1;
}

std::optional<uint64_t> FindOverlap(const std::vector<ByteRange>& any,
                                    const std::vector<ByteRange>& apart) {
  size_t k = 0;
  for (const ByteRange& range : any) {
    while (k < apart.size() && apart[k].end <= range.begin) ++k;
    if (k == apart.size()) return std::nullopt;
    if (apart[k].begin < range.end) return std::max(apart[k].begin, range.begin);
  }
  return std::nullopt;
}

std::optional<RangeBits> RangeBits::For(const RangeSummary& ranges) {
  RangeBits bits;
  bits.unit_shift_ = __builtin_ctzll(ranges.bounds);
  const uint64_t units = (ranges.high - ranges.low) >> bits.unit_shift_;
  if (units / kBitsPerRange > ranges.count ||
      (ranges.bytes >> bits.unit_shift_) / kSetBitsPerRange > ranges.count) {
    return std::nullopt;
  }
  bits.low_ = ranges.low >> bits.unit_shift_;
  bits.words_.resize(units / 64 + 1);
  return bits;
}

}  // namespace shunt::p2p
