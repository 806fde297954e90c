#include "runtime/p2p/overlap.h"

#include "runtime/core/status.h"
#include "runtime/p2p/overlap_bytes.h"
#include "runtime/p2p/overlap_numbers.h"

namespace shunt::p2p {
namespace {

bool ShareARegion(const Selection& a, const Selection& b) {
  auto i = a.regions().begin();
  auto k = b.regions().begin();
  while (i != a.regions().end() && k != b.regions().end()) {
    if (i->id == k->id) return true;
    i->id < k->id ? ++i : ++k;
  }
  return false;
}

bool SurelyApart(const Selection& source, const Selection& destination) {
  if (source.space() != destination.space() || !ShareARegion(source, destination)) return true;
  return source.list() != nullptr && destination.list() != nullptr &&
         source.list() != destination.list() && source.list()->SurelyApartFrom(*destination.list());
}

}  // namespace

absl::Status CheckOverlap(const Selection& source, const Selection& destination) {
  const Selection* reads = SurelyApart(source, destination) ? nullptr : &source;
  if (destination.list() == nullptr || !destination.list()->disjoint()) {
    return CheckBytes(reads, destination);
  }
  if (reads == nullptr ||
      (reads->list() == destination.list() && NumbersTell(*reads, destination))) {
    return CheckNumbers(reads, destination);
  }
  // Numbers are quicker and say more.
  SHUNT_RETURN_IF_ERROR(CheckNumbers(nullptr, destination));
  return CheckBytes(reads, destination);
}

}  // namespace shunt::p2p
