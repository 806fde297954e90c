// Plain loops for the one-pass bounds: read n arrays, write their sum to m arrays. With n = 1 they
// copy.
#pragma once

#include <cstddef>

namespace shunt::bench {

struct StreamArguments {
  const float* const* inputs;
  int input_count;
  float* const* outputs;
  int output_count;
  size_t begin;  // elements, multiples of 64
  size_t end;
};

using StreamLoop = void (*)(const StreamArguments&);

struct StreamKernels {
  const char* name;
  StreamLoop temporal;
  StreamLoop non_temporal;  // stores that go around the cache
};

// The widest loops that this processor runs.
const StreamKernels& BestStreamKernels();

// One per instruction set, each in a file compiled for it.
extern const StreamKernels kSse2StreamKernels;
extern const StreamKernels kAvx2StreamKernels;
extern const StreamKernels kAvx512StreamKernels;

}  // namespace shunt::bench
