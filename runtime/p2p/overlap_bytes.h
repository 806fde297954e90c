// Internal to runtime/p2p: overlap, told by the bytes that selections name. overlap.h has the
// rules.
#pragma once

#include "absl/status/status.h"
#include "runtime/p2p/selection.h"

namespace shunt::p2p {

absl::Status CheckBytesOnce(const Selection& destination);
absl::Status CheckBytesApart(const Selection& source, const Selection& destination);

}  // namespace shunt::p2p
