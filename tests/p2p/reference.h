// Transfers by brute force: every payload byte is listed with its place. Shapes at random, small
// enough for that.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "runtime/p2p/selection.h"

namespace shunt::p2p {

// (region id, offset) of one byte.
using Place = std::pair<uint64_t, uint64_t>;
using Places = std::vector<Place>;

// A selection and what it means.
struct Side {
  Selection selection;
  Places places;
};

class Shapes {
 public:
  explicit Shapes(uint32_t seed) : random_(seed) {}

  uint64_t Number(uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(random_);
  }
  bool Chance(int percent) { return Number(1, 100) <= static_cast<uint64_t>(percent); }

  // A set that fits into `region`: up to three dimensions, their strides in any order of size.
  StridedSet Set(const RegionExtent& region);
  // 1 to 4 sets; their pieces may overlap.
  Section ASection(const std::vector<RegionExtent>& regions);
  // `count` ids below `limit`, some of them twice now and then.
  std::vector<uint64_t> Ids(uint64_t count, uint64_t limit);
  // All, runs or ids of a list.
  Side OfList(const std::shared_ptr<const PreparedList>& list);
  // Blocks of one length in one region, in the order of random ids, of `bytes` in all. `piece`
  // divides bytes.
  Side Blocks(Space space, const RegionExtent& region, uint64_t piece, uint64_t bytes);
  // Raw descriptors of `bytes` in all; they overlap now and then.
  Side Raw(Space space, const std::vector<RegionExtent>& regions, uint64_t bytes);

 private:
  std::mt19937 random_;
};

// The bytes of piece `number` of a section, by counting.
Places PieceOf(const Section& section, uint64_t number);
uint64_t PiecesOf(const Section& section);

bool HasTwice(Places places);
bool HaveCommon(Places a, Places b);

}  // namespace shunt::p2p
