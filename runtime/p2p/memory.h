// Where the regions of a selection lie in this process.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/p2p/selection.h"

namespace shunt::p2p {

class RegionMemory {
 public:
  virtual ~RegionMemory() = default;
  // The first byte of a region that has `region.bytes` at least; stays mapped for as long as
  // whoever asked uses it. A section may be older than the region table, or a lie: the size is
  // checked here again. NOT_FOUND, OUT_OF_RANGE.
  virtual absl::StatusOr<std::byte*> Find(const RegionExtent& region) = 0;
};

// One for each of the selection's regions(), as extents of a Cursor count them.
using Bases = std::vector<std::byte*>;
absl::StatusOr<Bases> FindBases(const Selection& selection, RegionMemory& memory);

}  // namespace shunt::p2p
