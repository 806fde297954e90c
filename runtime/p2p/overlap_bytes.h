// Internal to runtime/p2p: overlap, told by the bytes that selections name. overlap.h has the
// rules.
#pragma once

#include "absl/status/status.h"
#include "runtime/p2p/selection.h"

namespace shunt::p2p {

// Each byte once in `destination`, and none of them in `source`, if it is not null: it is then of
// the same space.
absl::Status CheckBytes(const Selection* source, const Selection& destination);

}  // namespace shunt::p2p
