// Internal to runtime/p2p: byte ranges of several regions, compared one with another.
#pragma once

#include <cstdint>
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

// A pair of overlapping ranges, or false. Both sorted; those of `apart` don't overlap one another,
// those of `any` may. O(n + m).
bool FindOverlap(const std::vector<ByteRange>& any, const std::vector<ByteRange>& apart,
                 uint64_t* common_begin);

}  // namespace shunt::p2p
