// Copies, and signals alone. Each as NAME of few ranks or runs, and NAME_large of many.
#include "runtime/gpu/kernels/move_body.h"
#include "runtime/gpu/kernels/signals.h"

#define SHUNT_WHERE \
  shunt::gpu::Where { blockIdx.x, gridDim.x, threadIdx.x, blockDim.x }

#define SHUNT_MOVES(SUFFIX, FORM)                                                                \
  extern "C" __global__ void __launch_bounds__(256, 6) /* 40 registers: more blocks in flight */ \
      shunt_move##SUFFIX(const __grid_constant__ shunt::gpu::MoveParamsOf<FORM> params) {        \
    shunt::gpu::MoveByTeam(params, SHUNT_WHERE);                                                 \
    shunt::gpu::SendSignals(params.signals);                                                     \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(256)                                              \
      shunt_move_host##SUFFIX(const __grid_constant__ shunt::gpu::MoveParamsOf<FORM> params) {   \
    shunt::gpu::MoveByWarp(params, SHUNT_WHERE);                                                 \
    shunt::gpu::SendSignals(params.signals);                                                     \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(256, 5)                                           \
      shunt_spread##SUFFIX(const __grid_constant__ shunt::gpu::SpreadParamsOf<FORM> params) {    \
    shunt::gpu::SpreadBody(params, blockIdx.y, SHUNT_WHERE);                                     \
    shunt::gpu::SendSignals(params.signals);                                                     \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(256)                                              \
      shunt_signal##SUFFIX(const __grid_constant__ shunt::gpu::SignalsOf<FORM> signals) {        \
    shunt::gpu::SendSignals(signals);                                                            \
  }

SHUNT_MOVES(, shunt::gpu::Small)
SHUNT_MOVES(_large, shunt::gpu::Large)
