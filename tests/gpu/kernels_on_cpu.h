// The kernels' bodies on the CPU, thread by thread, on memory of the host's.
#pragma once

#include <cstdint>

#include "runtime/core/types.h"
#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu::testing {

// The grids are small and odd; what comes out does not depend on them. Signals are left to the
// caller.
template <class Form>
void ReduceOnCpu(const ReduceParamsOf<Form>& params);
template <class Form>
void SpreadOnCpu(const SpreadParamsOf<Form>& params);
template <class Form>
void MoveOnCpu(const MoveParamsOf<Form>& params);

}  // namespace shunt::gpu::testing
