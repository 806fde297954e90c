// shunt-perf's read and write: permuted pieces between memory and a file or an object.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/harness/options.h"
#include "bench/harness/record.h"

namespace shunt::bench {

// What a private daemon needs for it.
std::vector<std::string> StoreFlags(const PerfOptions& options);

// By one session. A write of a file is in place and includes its sync, one of an object includes
// its commit. Adds to `wrong` the bytes that did not arrive as they were.
absl::Status BenchmarkStores(const PerfOptions& options, const std::string& socket,
                             std::vector<Record>* records, uint64_t* wrong);

}  // namespace shunt::bench
