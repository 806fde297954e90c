// What a transfer names: pieces of regions. A region is known here by its id and size alone; who
// executes turns it into memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace shunt::p2p {

struct RegionExtent {
  uint64_t id = 0;
  uint64_t bytes = 0;
  bool operator==(const RegionExtent&) const = default;
};

struct Descriptor {
  uint64_t region = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const Descriptor&) const = default;
};

struct Dimension {
  uint64_t count = 1;
  int64_t stride = 0;  // bytes; of no meaning where count is 1
  bool operator==(const Dimension&) const = default;
};

// dims[0].count * dims[1].count * dims[2].count pieces of `length` bytes each, numbered with
// dims[2] running fastest. Piece (i0, i1, i2) lies at base + i0*stride0 + i1*stride1 + i2*stride2.
//
// Strides may come in any order of size (blocks numbered layer by layer may lie layers side by
// side), but they nest: each is at least as long as what the smaller ones span, so no two pieces
// share a byte. Negative strides are refused: every set is then described by its lowest address,
// and whoever wants pieces backwards names them so in an index list.
struct StridedSet {
  uint64_t region = 0;
  uint64_t base = 0;
  uint64_t length = 0;
  std::array<Dimension, 3> dims = {};
  bool operator==(const StridedSet&) const = default;
};

// More pieces than that in one set, or one section, are refused.
inline constexpr uint64_t kPiecesMax = uint64_t{1} << 40;

// INVALID_ARGUMENT for a count or length of 0, too many pieces, strides that are negative or don't
// nest, and a span beyond 2^63 bytes; OUT_OF_RANGE if it leaves a region of `region_bytes`.
// Everything below expects a set that has passed.
absl::Status Check(const StridedSet& set, uint64_t region_bytes);
// The same for one descriptor; a length of 0 is refused.
absl::Status Check(const Descriptor& descriptor, uint64_t region_bytes);

uint64_t PieceCount(const StridedSet& set);
// Bytes from base to the end of the last piece.
uint64_t Span(const StridedSet& set);
// Where piece `number` begins. For cold paths: three divisions.
uint64_t PieceOffset(const StridedSet& set, uint64_t number);

// "region 3: base 0, 2 x 64 x 16 pieces of 1024 bytes, strides 1048576, 32768, 2048".
std::string Describe(const StridedSet& set);

}  // namespace shunt::p2p
