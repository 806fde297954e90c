// The kernels' bodies on the CPU, thread by thread, on memory of the host's.
#pragma once

#include <cstdint>

#include "runtime/core/types.h"
#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu::testing {

// The grids are small and odd; what comes out does not depend on them. Signals are left to the
// caller.
void ReduceOnCpu(const ReduceParams& params);
void SpreadOnCpu(const SpreadParams& params);
void MoveOnCpu(const MoveParams& params);

}  // namespace shunt::gpu::testing
