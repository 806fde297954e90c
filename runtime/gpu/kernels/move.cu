// Copies, and signals alone.
#include "runtime/gpu/kernels/move_body.h"
#include "runtime/gpu/kernels/signals.h"

using shunt::gpu::Where;

extern "C" __global__ void __launch_bounds__(256, 6)  // 40 registers: more blocks in flight
    shunt_move(const __grid_constant__ shunt::gpu::MoveParams params) {
  shunt::gpu::MoveByTeam(params, Where{blockIdx.x, gridDim.x, threadIdx.x, blockDim.x});
  shunt::gpu::SendSignals(params.signals);
}

extern "C" __global__ void __launch_bounds__(256)
    shunt_move_host(const __grid_constant__ shunt::gpu::MoveParams params) {
  shunt::gpu::MoveByWarp(params, Where{blockIdx.x, gridDim.x, threadIdx.x, blockDim.x});
  shunt::gpu::SendSignals(params.signals);
}

extern "C" __global__ void __launch_bounds__(256, 5)
    shunt_spread(const __grid_constant__ shunt::gpu::SpreadParams params) {
  shunt::gpu::SpreadBody(params, blockIdx.y, Where{blockIdx.x, gridDim.x, threadIdx.x, blockDim.x});
  shunt::gpu::SendSignals(params.signals);
}

extern "C" __global__ void __launch_bounds__(256)
    shunt_signal(const __grid_constant__ shunt::gpu::Signals signals) {
  shunt::gpu::SendSignals(signals);
}
