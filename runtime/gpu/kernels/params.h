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
  uint16_t scatter;  // 1: destination d gets block d, of `count` elements, of the sources
  uint32_t divisor;
  uint64_t count;  // elements
  uint64_t source[kRanksMax];
  uint64_t destination[kRanksMax];
  uint64_t scalar[kRanksMax];  // the first SizeOf(dtype) bytes
  Signals signals;
};

// Copies segments of equal length, whose places follow from those of the ranks. A segment whose
// source is its destination is left out.
enum class SpreadPattern : uint32_t {
  kEach,   // segment i of `segments`: source[i] to destination[i]
  kFan,    // source[i] to destination[d] + i * bytes, for every d of `destinations`; read once
  kPairs,  // all to all: source[s] + d * bytes to destination[d] + s * bytes, for every s and d of
           // `segments`
};

struct SpreadParams {
  SpreadPattern pattern;
  uint32_t segments, destinations;
  uint32_t part;  // bytes that a warp takes at once; Kernels chooses
  uint64_t bytes;
  uint64_t source[kRanksMax];
  uint64_t destination[kRanksMax];
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
