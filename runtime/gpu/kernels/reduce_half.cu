#include "runtime/gpu/kernels/reduce_kernel.h"

using shunt::gpu::Bfloat16Codec;
using shunt::gpu::FastFloat16Codec;

SHUNT_REDUCE(shunt_reduce_float16, FastFloat16Codec)
SHUNT_REDUCE(shunt_reduce_bfloat16, Bfloat16Codec)
SHUNT_REDUCE_SUM(shunt_reduce_float16_2, FastFloat16Codec, 2, 2)
SHUNT_REDUCE_SUM(shunt_reduce_float16_4, FastFloat16Codec, 4, 1)
SHUNT_REDUCE_SUM(shunt_reduce_float16_8, FastFloat16Codec, 8, 1)
SHUNT_REDUCE_SUM(shunt_reduce_bfloat16_2, Bfloat16Codec, 2, 2)
SHUNT_REDUCE_SUM(shunt_reduce_bfloat16_4, Bfloat16Codec, 4, 1)
SHUNT_REDUCE_SUM(shunt_reduce_bfloat16_8, Bfloat16Codec, 8, 1)
