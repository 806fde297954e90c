// The parameters of the kernels: plain structs that nvcc and the host's compiler lay out alike.
#pragma once

#include <cstdint>

namespace shunt::gpu {

inline constexpr int kRanksMax = 128;

// What a kernel does last, once all its blocks have written: signals, visible to the whole system
// after the output is. Of several kernels of one operation only the last has signals.
struct Signals {
  uint32_t* ticket;      // device memory, 0; counts blocks, and is 0 again after
  uint32_t count;        // of `word` in use
  uint32_t value;        // each gets its own: base + its entry of `values`
  uint64_t* completion;  // host memory of the worker's; null: none
  uint64_t completion_value;
  uint32_t* word[kRanksMax];
  uint32_t values[kRanksMax];
};

// destinations[d][i] = sources[0][i] op sources[1][i] op ...: ReduceInto of
// runtime/collectives/exec/reduce.h, bit for bit, its rules for rounding, NaN and division
// included. One source without kAvg or kPremulSum is a copy.
struct ReduceParams {
  uint8_t dtype, redop;  // runtime/core/types.h
  uint16_t sources, destinations;
  uint32_t divisor;
  uint64_t count;  // elements
  uint64_t source[kRanksMax];
  uint64_t destination[kRanksMax];
  uint64_t scalar[kRanksMax];  // the first SizeOf(dtype) bytes
  Signals signals;
};

// Copies `runs` pieces; `run` lies in pinned host memory or in the device's.
struct MoveParams {
  const void* run;  // Run of worker/protocol.h
  uint32_t runs;
  uint32_t longest;  // bytes of the longest run: decides the grid
  Signals signals;
};

}  // namespace shunt::gpu
