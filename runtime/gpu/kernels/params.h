// The parameters of the kernels: plain structs that nvcc and the host's compiler lay out alike.
#pragma once

#include <cstdint>

namespace shunt::gpu {

inline constexpr int kRanksMax = 128;

// Every kernel comes in two forms, whose parameters have room for few and for many: the driver
// copies all of them at a launch, and the GPU fetches them before it begins.
struct Small {
  static constexpr uint32_t kRanks = 8, kRuns = 8;
};
struct Large {
  static constexpr uint32_t kRanks = kRanksMax, kRuns = 64;
};

// What a kernel does last, once all its blocks have written: signals, visible to the whole system
// after the output is. Of several kernels of one operation only the last has signals.
struct SignalsHead {
  uint32_t* ticket;      // device memory, a stream's own, 0; counts blocks, and is 0 again after
  uint32_t count;        // of `word` in use
  uint32_t value;        // each gets its own: base + its entry of `values`
  uint64_t* completion;  // host memory of the worker's; null: none
  uint64_t completion_value;
};

template <class Form>
struct SignalsOf : SignalsHead {
  uint32_t* word[Form::kRanks];
  uint32_t values[Form::kRanks];
};
using Signals = SignalsOf<Large>;

// destinations[d][i] = sources[0][i] op sources[1][i] op ...: ReduceInto of
// runtime/collectives/exec/reduce.h, bit for bit, its rules for rounding, NaN and division
// included. One source without kAvg or kPremulSum is a copy.
struct ReduceHead {
  uint8_t dtype, redop;  // runtime/core/types.h
  uint16_t sources, destinations;
  uint16_t scatter;  // 1: destination d gets block d, of `count` elements, of the sources
  uint32_t divisor;
  uint64_t count;  // elements
};

template <class Form>
struct ReduceParamsOf : ReduceHead {
  uint64_t source[Form::kRanks];
  uint64_t destination[Form::kRanks];
  uint64_t scalar[Form::kRanks];  // the first SizeOf(dtype) bytes; of kPremulSum
  SignalsOf<Form> signals;
};
using ReduceParams = ReduceParamsOf<Large>;

// Copies segments of equal length, whose places follow from those of the ranks. A segment whose
// source is its destination is left out. A block takes one part of a segment.
enum class SpreadPattern : uint32_t {
  kEach,   // segment i of `segments`: source[i] to destination[i]
  kFan,    // source[i] to destination[d] + i * bytes, for every d of `destinations`; read once
  kPairs,  // all to all: source[s] + d * bytes to destination[d] + s * bytes, for every s and d of
           // `segments`
};

struct SpreadHead {
  SpreadPattern pattern;
  uint32_t segments, destinations;
  uint32_t part;  // bytes, a multiple of 16; Kernels chooses
  uint64_t bytes;
};

template <class Form>
struct SpreadParamsOf : SpreadHead {
  uint64_t source[Form::kRanks];
  uint64_t destination[Form::kRanks];
  SignalsOf<Form> signals;
};
using SpreadParams = SpreadParamsOf<Large>;

// As Run of worker/protocol.h; of at most 1 GiB.
struct RunWords {
  uint64_t source, destination, bytes;
};

// As many runs travel with the parameters: no table needs to be where the GPU is quick to read.
inline constexpr uint32_t kFewRuns = Large::kRuns;

// Copies `runs` pieces. A team takes a part of one: a block, or a warp where runs are short or a
// side lies in host memory.
struct MoveHead {
  const RunWords* run;  // device memory, or any that the GPU reaches; null: `few`
  uint32_t runs;
  uint32_t host;   // 1: a side lies in host memory
  uint64_t bytes;  // of all runs together; decides the grid, no more
  // Kernels chooses.
  uint32_t part;   // bytes, a multiple of 16; more of a run that is longer than all parts
  uint32_t parts;  // of a run
  uint32_t team;   // threads
};

template <class Form>
struct MoveParamsOf : MoveHead {
  RunWords few[Form::kRuns];
  SignalsOf<Form> signals;
};
using MoveParams = MoveParamsOf<Large>;

}  // namespace shunt::gpu
