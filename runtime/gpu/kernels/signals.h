// The end of a kernel: its last block tells whoever waits. Kernels gives no signals to large grids,
// which pay for that in every block, and lets the kernel of one block that does nothing else
// follow.
#pragma once

#include <cstdint>

#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu {

// Called by all threads of all blocks, after their last store.
//
// Each block makes its output visible to this GPU before it takes its ticket, and the last one all
// of that to the whole system before it writes the words: the order is transitive, so who reads a
// word and then the output, on any processor, reads the new one. What earlier kernels of the stream
// wrote is in that order as well.
__device__ __forceinline__ void SendSignals(const Signals& signals) {
  if (signals.count == 0 && signals.completion == nullptr) return;
  __shared__ bool last;
  const uint32_t blocks = gridDim.x * gridDim.y;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    // Wraps to 0 at the last one.
    last = blocks == 1 || atomicInc(signals.ticket, blocks - 1) == blocks - 1;
    if (last) __threadfence_system();
  }
  __syncthreads();
  if (!last) return;
  for (uint32_t i = threadIdx.x; i < signals.count; i += blockDim.x) {
    asm volatile("st.release.sys.global.u32 [%0], %1;"
                 :
                 : "l"(signals.word[i]), "r"(signals.value + signals.values[i])
                 : "memory");
  }
  if (signals.completion == nullptr) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    asm volatile("st.release.sys.global.u64 [%0], %1;"
                 :
                 : "l"(signals.completion), "l"(signals.completion_value)
                 : "memory");
  }
}

}  // namespace shunt::gpu
