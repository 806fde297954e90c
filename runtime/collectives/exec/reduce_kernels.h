// Internal to runtime/collectives/exec: what reduce.cc asks of the kernel files.
#pragma once

#include <cstddef>

#include "runtime/collectives/exec/reduce.h"

namespace shunt::internal {

struct ReduceArgs {
  const std::byte* const* srcs;
  size_t src_count;
  std::byte* const* dsts;
  size_t dst_count;
  size_t count;           // elements
  const Scalar* scalars;  // kPremulSum: src_count of them
  int divisor;            // kAvg
  bool stream;            // non-temporal stores where alignment allows
};

// Each handles its own data types and every redop, and expects the default floating-point mode. The
// caller fences after streaming.
void ReduceInt(DataType dtype, Redop redop, const ReduceArgs& args);
void ReduceFloat(DataType dtype, Redop redop, const ReduceArgs& args);       // float32, float64
void ReduceSmallFloat(DataType dtype, Redop redop, const ReduceArgs& args);  // 16 and 8 bits wide
void Copy(const ReduceArgs& args);  // one source; elements are bytes

}  // namespace shunt::internal
