// Regions that a transfer holds, as memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/memory/region_table.h"
#include "runtime/p2p/memory.h"

namespace shunt::daemon {

class HeldRegions : public p2p::RegionMemory {
 public:
  explicit HeldRegions(std::vector<memory::RegionUse>* uses) : uses_(uses) {}
  absl::StatusOr<std::byte*> Find(const p2p::RegionExtent& region) override {
    for (memory::RegionUse& use : *uses_) {
      if (use->id() == region.id) return use->At(0, region.bytes);
    }
    return absl::InternalError(absl::StrCat("region ", region.id, " is not held"));
  }

 private:
  std::vector<memory::RegionUse>* const uses_;
};

}  // namespace shunt::daemon
