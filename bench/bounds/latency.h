// The costs of waiting on this machine, each measured between two processes.
#pragma once

#include "absl/status/statusor.h"

namespace shunt::bench {

// Microseconds for one there-and-back, median over blocks.

// Both sides spin on a cache line that the other one writes. UNAVAILABLE with one core.
absl::StatusOr<double> CacheLineRoundTripUs();
// Both sides sleep in futex(2) at once, without spinning.
absl::StatusOr<double> FutexRoundTripUs();
// One switch from a process to another on one core: half of a futex round trip with both pinned
// there.
absl::StatusOr<double> ContextSwitchUs();

}  // namespace shunt::bench
