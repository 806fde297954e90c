// The monotonic clock as a plain number of nanoseconds: comparable between processes of one node,
// so a deadline can lie in shared memory. Through the vDSO: about 20 ns a call, no system call.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>
#include <limits>

namespace shunt {

inline constexpr int64_t kNeverNs = std::numeric_limits<int64_t>::max();

// CLOCK_MONOTONIC. Any thread.
inline int64_t NowNs() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// The moment `timeout` from now; kNeverNs if that lies beyond the clock's range. A negative timeout
// is past.
inline int64_t DeadlineAfterNs(std::chrono::nanoseconds timeout) {
  int64_t deadline;
  if (__builtin_add_overflow(NowNs(), timeout.count(), &deadline)) {
    return timeout.count() > 0 ? kNeverNs : std::numeric_limits<int64_t>::min();
  }
  return deadline;
}

}  // namespace shunt
