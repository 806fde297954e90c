#include "runtime/p2p/overlap.h"

#include <optional>
#include <utility>

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

}  // namespace

absl::Status CheckWrittenOnce(const Selection& destination) {
  const bool disjoint = destination.list() != nullptr && destination.list()->disjoint();
  return disjoint ? CheckNumbersOnce(destination) : CheckBytesOnce(destination);
}

absl::Status CheckApart(const Selection& source, const Selection& destination) {
  if (source.space() != destination.space() || !ShareARegion(source, destination)) {
    return absl::OkStatus();
  }
  if (source.list() != nullptr && destination.list() != nullptr) {
    if (source.list() != destination.list()) {
      if (source.list()->SurelyApartFrom(*destination.list())) return absl::OkStatus();
    } else if (source.list()->disjoint()) {
      if (auto told = CheckNumbersApart(source, destination); told.has_value())
        return *std::move(told);
    }
  }
  return CheckBytesApart(source, destination);
}

}  // namespace shunt::p2p
