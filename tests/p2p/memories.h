// Regions of plain memory for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/p2p/memory.h"

namespace shunt::p2p {

class TestMemory : public RegionMemory {
 public:
  std::vector<std::byte>& Add(uint64_t id, uint64_t bytes) {
    auto& region = regions_[id];
    region.resize(bytes);
    return region;
  }
  std::vector<std::byte>& at(uint64_t id) { return regions_.at(id); }
  std::vector<RegionExtent> Extents() const {
    std::vector<RegionExtent> extents;
    for (const auto& [id, bytes] : regions_) extents.push_back({id, bytes.size()});
    return extents;
  }
  absl::StatusOr<std::byte*> Find(const RegionExtent& region) override {
    const auto at = regions_.find(region.id);
    if (at == regions_.end()) return absl::NotFoundError(absl::StrCat("no region ", region.id));
    if (at->second.size() < region.bytes) {
      return absl::OutOfRangeError(absl::StrCat("region ", region.id, " has ", at->second.size(),
                                                " bytes, expected ", region.bytes));
    }
    return at->second.data();
  }

 private:
  std::map<uint64_t, std::vector<std::byte>> regions_;
};

// A section of these sets, with the regions that they name out of `regions`.
inline Section MakeSection(std::vector<StridedSet> sets, const std::vector<RegionExtent>& regions) {
  Section section;
  section.name = "test";
  section.incarnation = 1;
  section.version = 1;
  for (const RegionExtent& region : regions) {
    for (const StridedSet& set : sets) {
      if (set.region == region.id) {
        section.regions.push_back(region);
        break;
      }
    }
  }
  section.sets = std::move(sets);
  return section;
}

}  // namespace shunt::p2p
