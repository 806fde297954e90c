#include "runtime/p2p/section.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::p2p {

absl::Status Check(const Section& section) {
  const std::string who = absl::StrCat("section \"", Printable(section.name), "\"");
  if (section.name.empty() || section.name.size() > kSectionNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a section's name has ", section.name.size(),
                                                   " bytes, expected 1 to ", kSectionNameBytesMax));
  }
  if (section.sets.empty() || section.sets.size() > kSectionSetsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " has ", section.sets.size(), " strided sets, expected 1 to ", kSectionSetsMax));
  }
  const std::vector<RegionExtent>& regions = section.regions;
  for (size_t i = 1; i < regions.size(); ++i) {
    if (regions[i].id <= regions[i - 1].id) {
      return absl::InvalidArgumentError(absl::StrCat(who, ": region ", regions[i].id,
                                                     " comes after region ", regions[i - 1].id,
                                                     ", expected rising ids"));
    }
  }
  std::vector<bool> used(regions.size());
  uint64_t pieces = 0;
  uint64_t bytes = 0;
  for (const StridedSet& set : section.sets) {
    const auto at =
        std::lower_bound(regions.begin(), regions.end(), set.region,
                         [](const RegionExtent& region, uint64_t id) { return region.id < id; });
    if (at == regions.end() || at->id != set.region) {
      return absl::InvalidArgumentError(absl::StrCat(who, ": a set names region ", set.region,
                                                     ", which is not among its ", regions.size(),
                                                     " regions"));
    }
    used[at - regions.begin()] = true;
    if (absl::Status s = Check(set, at->bytes); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat(who, ": ", s.message()));
    }
    const uint64_t set_bytes = PieceCount(set) * set.length;  // at most its span: no overflow
    if (set_bytes > kPayloadMax - bytes) {
      return absl::InvalidArgumentError(absl::StrCat(who, " has more than 2^62 bytes"));
    }
    bytes += set_bytes;
    pieces += PieceCount(set);
    if (pieces > kPiecesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, " has more than ", kPiecesMax, " pieces"));
    }
  }
  for (size_t i = 0; i < regions.size(); ++i) {
    if (!used[i]) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": no set is in its region ", regions[i].id));
    }
  }
  return absl::OkStatus();
}

}  // namespace shunt::p2p
