// What shunt-perf's transfers move: how a size is cut into pieces, and in which order they are
// named.
#pragma once

#include <shunt/client.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shunt::bench {

// How one size is cut.
struct Cut {
  uint64_t piece_bytes;
  uint64_t pieces;
  uint64_t bytes() const { return piece_bytes * pieces; }
};

Cut CutOf(uint64_t bytes, uint64_t piece_bytes);

// The payload's byte `i`.
inline uint8_t ByteAt(uint64_t i) { return static_cast<uint8_t>((i * 2654435761u) >> 13); }

// One side's pieces in the form that was asked for (see PerfOptions). Keeps the arrays.
class Side {
 public:
  // Pieces of a region, permuted by `seed`; in order with the form "all".
  Side(const std::string& form, const Cut& cut, unsigned seed, uint64_t region);

  Selection Of(const List& list) const;
  // The i-th piece that is named.
  uint64_t id(uint64_t i) const { return ids_[i]; }
  uint64_t pieces() const { return ids_.size(); }

 private:
  std::string form_;
  std::vector<uint32_t> ids_;
  std::vector<shunt_run> runs_;
  std::vector<shunt_piece> pieces_;
};

}  // namespace shunt::bench
