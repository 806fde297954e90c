#include "runtime/gpu/kernels/reduce_kernel.h"

using shunt::gpu::IntCodec;

SHUNT_REDUCE(shunt_reduce_int8, IntCodec<int8_t>)
SHUNT_REDUCE(shunt_reduce_uint8, IntCodec<uint8_t>)
SHUNT_REDUCE(shunt_reduce_int32, IntCodec<int32_t>)
SHUNT_REDUCE(shunt_reduce_uint32, IntCodec<uint32_t>)
SHUNT_REDUCE(shunt_reduce_int64, IntCodec<int64_t>)
SHUNT_REDUCE(shunt_reduce_uint64, IntCodec<uint64_t>)
