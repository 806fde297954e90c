// The end of a kernel: its last block tells whoever waits. Kernels gives no signals to large grids,
// which pay for that in every block, and lets the kernel of one block that does nothing else
// follow.
#pragma once

#include <cstdint>

#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu {

// Orders what this thread has done and seen before what it does after, for all who see that.
__device__ __forceinline__ void FenceDevice() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ __forceinline__ void FenceSystem() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// Called by all threads of all blocks, after their last store.
//
// Each block makes its output visible to this GPU before it takes its ticket, and the last one all
// of that to the whole system before it writes the words: the order is transitive, so who reads a
// word and then the output, on any processor, reads the new one. What earlier kernels of the stream
// wrote is in that order as well.
//
// A fence to the system takes the time of a way over PCIe and back, so there is one before the
// words, for all lanes at once, and one between them and the completion. A single block has no
// ticket.
template <class Form>
__device__ __forceinline__ void SendSignals(const SignalsOf<Form>& signals) {
  if (signals.count == 0 && signals.completion == nullptr) return;
  constexpr uint32_t kLanes = 32;
  __syncthreads();
  if (threadIdx.x >= kLanes) return;
  const uint32_t blocks = gridDim.x * gridDim.y;
  if (blocks > 1) {
    uint32_t taken = 0;
    if (threadIdx.x == 0) {
      FenceDevice();
      taken = atomicInc(signals.ticket, blocks - 1);  // wraps to 0 at the last one
      FenceDevice();
    }
    if (__shfl_sync(~0u, taken, 0) != blocks - 1) return;
    __syncwarp();
  }
  FenceSystem();
  for (uint32_t i = threadIdx.x; i < signals.count; i += kLanes) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;"
                 :
                 : "l"(signals.word[i]), "r"(signals.value + signals.values[i])
                 : "memory");
  }
  if (signals.completion == nullptr) return;
  __syncwarp();
  if (threadIdx.x == 0) {
    if (signals.count > 0) FenceSystem();
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;"
                 :
                 : "l"(signals.completion), "l"(signals.completion_value)
                 : "memory");
  }
}

}  // namespace shunt::gpu
