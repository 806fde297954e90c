// The program of a GPU's worker, but for what launches: its command line, its end with shuntd.
#pragma once

#include "runtime/gpu/worker/worker.h"

namespace shunt::daemon {

// The exit status. 0: shuntd has closed the control socket, or all GPUs are listed. Words of what
// went wrong are on stderr.
int WorkerMain(int argc, char** argv, const gpu::MakeExecutor& make);

}  // namespace shunt::daemon
