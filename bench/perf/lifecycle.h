// What making and dropping things costs: communicators, sessions, and an idle daemon.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "bench/harness/options.h"
#include "bench/harness/private_daemon.h"
#include "bench/harness/rank_home.h"
#include "bench/harness/record.h"

namespace shunt::bench {

// Each prints a small table and appends its records. The calling process must have no other thread
// and no session of its own: ranks are forked.

// Median time from the last rank's call of join to the last rank's return, all sessions open: a
// name joined before (warm) and a new one.
absl::Status BenchmarkJoin(const PerfOptions& options, const RankHome& home,
                           std::vector<Record>* records);
// Median time of shunt_open, the first in a freshly started process and later ones.
absl::Status BenchmarkOpen(const PerfOptions& options, const DaemonUnderTest& daemon,
                           std::vector<Record>* records);
// The other half of BenchmarkOpen, in the fresh process: prints nanoseconds, one a line.
absl::Status OpenChild(const std::string& socket);
// What the daemon keeps of communicators made and dropped, and of sessions opened and killed,
// beyond what it held after the first hundred.
absl::Status BenchmarkSoak(const PerfOptions& options, const DaemonUnderTest& daemon,
                           std::vector<Record>* records);
// The daemon's CPU time over some seconds with four open sessions.
absl::Status BenchmarkIdle(const PerfOptions& options, const DaemonUnderTest& daemon,
                           std::vector<Record>* records);

}  // namespace shunt::bench
