// Internal to runtime/p2p: overlap within one disjoint list, told by the numbers of its pieces.
// overlap.h has the rules.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "runtime/p2p/selection.h"

namespace shunt::p2p {

absl::Status CheckNumbersOnce(const Selection& destination);
// Nothing if the two are named in ways that can't be compared so.
std::optional<absl::Status> CheckNumbersApart(const Selection& source,
                                              const Selection& destination);

}  // namespace shunt::p2p
