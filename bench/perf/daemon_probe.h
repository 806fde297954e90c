// What a running daemon holds, as the kernel counts it.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace shunt::bench {

struct Holdings {
  int64_t resident_bytes = 0;  // VmRSS
  int64_t descriptors = 0;
  int64_t shared_bytes = 0;  // pages of memory files that it has open or mapped
};

absl::StatusOr<Holdings> HoldingsOf(pid_t pid);
// Waits (at most 5 s) until two looks 100 ms apart show the same descriptors: the daemon has
// digested the end of its clients.
absl::StatusOr<Holdings> SettledHoldingsOf(pid_t pid);

// CPU time of all its threads, dead ones too, in nanoseconds.
absl::StatusOr<int64_t> CpuTimeNs(pid_t pid);

}  // namespace shunt::bench
