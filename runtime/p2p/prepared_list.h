// A section that has been checked, in the form in which transfers name its pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/p2p/geometry.h"
#include "runtime/p2p/section.h"

namespace shunt::p2p {

// Whose region ids: those of one space name different memory exactly if they differ. Memory of
// different spaces (nodes) is never the same.
using Space = uint64_t;

// Immutable; shared by all transfers that name pieces of it.
class PreparedList {
 public:
  // Check's errors. Time: microseconds for what is regular, tens of milliseconds at worst.
  static absl::StatusOr<std::shared_ptr<const PreparedList>> Prepare(Section section, Space space);

  const Section& section() const { return section_; }
  Space space() const { return space_; }
  uint64_t pieces() const { return first_piece_.back(); }
  uint64_t bytes() const { return bytes_; }
  // What all pieces have; 0 if they differ.
  uint64_t piece_bytes() const { return piece_bytes_; }
  // No two pieces share a byte. False where that could not be shown: transfers into such a list
  // have their pieces compared one with another, which takes longer.
  bool disjoint() const { return disjoint_; }

  size_t sets() const { return geometry_.size(); }
  const Geometry& geometry(size_t set) const { return geometry_[set]; }
  uint64_t first_piece(size_t set) const { return first_piece_[set]; }
  size_t SetOf(uint64_t piece) const {
    if (set_pieces_.divisor() != 0) return set_pieces_(piece);
    return FindSet(piece);
  }
  // Of all pieces with lower numbers; `piece` may be pieces().
  uint64_t BytesBefore(uint64_t piece) const {
    if (piece_bytes_ != 0) return piece * piece_bytes_;
    if (piece == pieces()) return bytes_;
    const size_t set = SetOf(piece);
    return first_byte_[set] + (piece - first_piece_[set]) * geometry_[set].length();
  }

  // True only if no byte of this list is in `other`.
  bool SurelyApartFrom(const PreparedList& other) const;

 private:
  // The range of a set in its region; sorted, so that few pairs of sets need a look.
  struct Box {
    uint64_t region;
    uint64_t begin;
    uint64_t end;
    uint32_t set;
  };

  PreparedList(Section section, Space space);
  size_t FindSet(uint64_t piece) const;
  bool ShowDisjoint() const;

  const Section section_;
  const Space space_;
  std::vector<Geometry> geometry_;
  std::vector<uint64_t> first_piece_;  // and one beyond the last
  std::vector<uint64_t> first_byte_;
  std::vector<Box> boxes_;  // by region and begin
  Divider set_pieces_{0};   // 0: sets have different numbers of pieces
  uint64_t piece_bytes_ = 0;
  uint64_t bytes_ = 0;
  bool disjoint_ = false;
};

}  // namespace shunt::p2p
