// A rank's side of a benchmark: runs the driver's commands on a backend until it is told to exit.
#pragma once

#include <functional>

#include "bench/harness/backend.h"
#include "bench/harness/control.h"

namespace shunt::bench {

// Blocks until the driver says exit, or something failed. Returns the process's exit code. All
// ranks measure alike: check once on fresh data, warm up, time `blocks` blocks of equal numbers of
// iterations, check again. A block begins with all ranks at a barrier that is not the library's.
int ServeBenchmark(Control* control, Backend& backend);

// The loop beneath: attaches `rank` and calls `execute` for each command until exit, or until it
// gives false; it must end with a RankBarrier. Returns the exit code.
int ServeCommands(Control* control, int rank, const std::function<bool(const Command&)>& execute);

}  // namespace shunt::bench
