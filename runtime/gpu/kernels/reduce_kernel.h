// Makes a body the kernels of a name.
#pragma once

#include "runtime/gpu/kernels/reduce_body.h"
#include "runtime/gpu/kernels/signals.h"

#define SHUNT_REDUCE_KERNEL(NAME, FORM, ...)                                          \
  extern "C" __global__ void __launch_bounds__(256)                                   \
      NAME(const __grid_constant__ shunt::gpu::ReduceParamsOf<FORM> params) {         \
    const shunt::gpu::Where where = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; \
    shunt::gpu::__VA_ARGS__(params, blockIdx.y, where);                               \
    shunt::gpu::SendSignals(params.signals);                                          \
  }

// Any reduction, any number of sources: NAME of few ranks, NAME_large of many.
#define SHUNT_REDUCE(NAME, ...)                                        \
  SHUNT_REDUCE_KERNEL(NAME, shunt::gpu::Small, ReduceAny<__VA_ARGS__>) \
  SHUNT_REDUCE_KERNEL(NAME##_large, shunt::gpu::Large, ReduceAny<__VA_ARGS__>)

// Sum and average of SOURCES sources, with VECTORS vectors of each in flight in a thread. Of few
// ranks alone.
#define SHUNT_REDUCE_SUM(NAME, CODEC, SOURCES, VECTORS) \
  SHUNT_REDUCE_KERNEL(NAME, shunt::gpu::Small,          \
                      ReduceBody<CODEC, shunt::gpu::SumOrAvgOp<CODEC>, SOURCES, VECTORS>)
