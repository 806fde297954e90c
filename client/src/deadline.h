// From a caller's timeout to a moment.
#pragma once

#include <time.h>

#include <cstdint>

#include "runtime/core/clock.h"

namespace shunt::client {

// The moment, CLOCK_MONOTONIC, that lies `timeout_ns` > 0 ahead. Long timeouts may end some
// milliseconds late: the coarse clock costs a fifth of the fine one, on a path where all else takes
// 100 ns.
inline int64_t DeadlineNs(int64_t timeout_ns) {
  constexpr int64_t kLongNs = 1'000'000'000;
  constexpr int64_t kCoarseStepNs = 10'000'000;  // at 100 Hz, the slowest kernels
  if (timeout_ns < kLongNs) return NowNs() + timeout_ns;
  if (timeout_ns == kNeverNs) return kNeverNs;
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const int64_t now_ns =
      static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec + kCoarseStepNs;
  int64_t deadline_ns;
  return __builtin_add_overflow(now_ns, timeout_ns, &deadline_ns) ? kNeverNs : deadline_ns;
}

}  // namespace shunt::client
