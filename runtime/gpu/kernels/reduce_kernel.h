// Makes a body the kernel of a name.
#pragma once

#include "runtime/gpu/kernels/reduce_body.h"
#include "runtime/gpu/kernels/signals.h"

// Any reduction, any number of sources.
#define SHUNT_REDUCE(NAME, ...)                                                       \
  extern "C" __global__ void __launch_bounds__(256)                                   \
      NAME(const __grid_constant__ shunt::gpu::ReduceParams params) {                 \
    const shunt::gpu::Where where = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; \
    shunt::gpu::ReduceAny<__VA_ARGS__>(params, blockIdx.y, where);                    \
    shunt::gpu::SendSignals(params.signals);                                          \
  }

// Sum and average of SOURCES sources, with VECTORS vectors of each in flight in a thread.
#define SHUNT_REDUCE_SUM(NAME, CODEC, SOURCES, VECTORS)                               \
  extern "C" __global__ void __launch_bounds__(256)                                   \
      NAME(const __grid_constant__ shunt::gpu::ReduceParams params) {                 \
    const shunt::gpu::Where where = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; \
    shunt::gpu::ReduceBody<CODEC, shunt::gpu::SumOrAvgOp<CODEC>, SOURCES, VECTORS>(   \
        params, blockIdx.y, where);                                                   \
    shunt::gpu::SendSignals(params.signals);                                          \
  }
