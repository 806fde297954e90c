#include "runtime/gpu/kernels/reduce_kernel.h"

using shunt::gpu::Float32Codec;
using shunt::gpu::Float64Codec;

SHUNT_REDUCE(shunt_reduce_float32, Float32Codec)
SHUNT_REDUCE(shunt_reduce_float64, Float64Codec)
SHUNT_REDUCE_SUM(shunt_reduce_float32_2, Float32Codec, 2, 2)
SHUNT_REDUCE_SUM(shunt_reduce_float32_4, Float32Codec, 4, 1)
SHUNT_REDUCE_SUM(shunt_reduce_float32_8, Float32Codec, 8, 1)
