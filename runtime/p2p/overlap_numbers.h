// Internal to runtime/p2p: overlap within one disjoint list, told by the numbers of its pieces.
// overlap.h has the rules.
#pragma once

#include "absl/status/status.h"
#include "runtime/p2p/selection.h"

namespace shunt::p2p {

// Whether numbers tell if the two, selections of one disjoint list, have a piece in common.
bool NumbersTell(const Selection& source, const Selection& destination);

// Each piece once in `destination`, a selection of a disjoint list; and none of them in `source`,
// if it is not null and NumbersTell.
absl::Status CheckNumbers(const Selection* source, const Selection& destination);

}  // namespace shunt::p2p
