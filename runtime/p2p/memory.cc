#include "runtime/p2p/memory.h"

#include "runtime/core/status.h"

namespace shunt::p2p {

absl::StatusOr<Bases> FindBases(const Selection& selection, RegionMemory& memory) {
  Bases bases;
  for (const RegionExtent& region : selection.regions()) {
    SHUNT_ASSIGN_OR_RETURN(std::byte* const base, memory.Find(region));
    bases.push_back(base);
  }
  return bases;
}

}  // namespace shunt::p2p
