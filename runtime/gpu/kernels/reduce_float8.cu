#include "runtime/gpu/kernels/reduce_kernel.h"

SHUNT_REDUCE(shunt_reduce_float8_e4m3, shunt::gpu::FastE4M3Codec)
SHUNT_REDUCE(shunt_reduce_float8_e5m2, shunt::gpu::FastE5M2Codec, shunt::gpu::E5M2KeepInfCodec)
