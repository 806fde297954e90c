// Internal to runtime/p2p: byte ranges of several regions, compared one with another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace shunt::p2p {

// In one address space in which all regions lie one behind the other.
struct ByteRange {
  uint64_t begin;
  uint64_t end;
};

// By `begin`. O(n) if they are sorted already; otherwise a radix sort, O(n) for each 11 bits in
// which they differ. No order of the input makes it slower.
void SortByBegin(std::vector<ByteRange>* ranges);

// The first two that overlap, as indices i and i + 1 into the sorted ranges; -1 if none do.
int64_t FindOverlap(const std::vector<ByteRange>& sorted);

// The first byte that is in a range of both, or nothing. Both sorted; those of `apart` don't
// overlap one another, those of `any` may. O(n + m).
std::optional<uint64_t> FindOverlap(const std::vector<ByteRange>& any,
                                    const std::vector<ByteRange>& apart);

// What ranges have in common.
struct RangeSummary {
  uint64_t count = 0;
  uint64_t bytes = 0;  // of each counted for itself
  uint64_t low = UINT64_MAX;
  uint64_t high = 0;
  uint64_t bounds = 0;  // all begins and ends, or-ed

  void Add(const ByteRange& range) {
    ++count;
    bytes += range.end - range.begin;
    low = range.begin < low ? range.begin : low;
    high = range.end > high ? range.end : high;
    bounds |= range.begin | range.end;
  }
};

// Ranges as bits, one for each unit of 2^k bytes of which all begins and ends are multiples: blocks
// of a cache lie so, and nothing needs sorting.
class RangeBits {
 public:
  // For the ranges of the summary, none of them empty; nothing if the bits would be many more than
  // the ranges.
  static std::optional<RangeBits> For(const RangeSummary& ranges);
  // False if part of it is there already.
  bool Add(const ByteRange& range) {
    bool seen = false;
    ForEachWord(range, [&](uint64_t& word, uint64_t mask) {
      seen |= (word & mask) != 0;
      word |= mask;
    });
    return !seen;
  }
  // True if part of it is there.
  bool Has(const ByteRange& range) {
    bool seen = false;
    ForEachWord(range, [&](uint64_t& word, uint64_t mask) { seen |= (word & mask) != 0; });
    return seen;
  }

 private:
  template <typename Body>
  void ForEachWord(const ByteRange& range, const Body& body) {
    uint64_t at = (range.begin >> unit_shift_) - low_;
    const uint64_t end = (range.end >> unit_shift_) - low_;
    while (at < end) {
      const uint64_t in_word = std::min(end - at, 64 - at % 64);
      const uint64_t mask = (in_word == 64 ? ~uint64_t{0} : (uint64_t{1} << in_word) - 1)
                            << (at % 64);
      body(words_[at / 64], mask);
      at += in_word;
    }
  }

  RangeBits() = default;

  int unit_shift_ = 0;
  uint64_t low_ = 0;  // units
  std::vector<uint64_t> words_;
};

}  // namespace shunt::p2p
