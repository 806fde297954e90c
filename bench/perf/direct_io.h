// What a file gives to plain system calls: the bound of shunt-perf's read and write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/perf/side.h"

namespace shunt::bench {

// The pieces of `side`, each read into a page-aligned piece of memory of its own, or written from
// it, with one preadv or pwritev and O_DIRECT; a thread makes one call at a time. With writes one
// fsync at the end. Microseconds from the first call to the end of the last. INVALID_ARGUMENT: the
// file system or the length of pieces won't do for O_DIRECT.
absl::StatusOr<double> DirectIoUs(const std::string& path, const Cut& cut, const Side& side,
                                  int threads, bool write);

}  // namespace shunt::bench
