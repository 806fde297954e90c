// The fat binaries, one of each .cu file, as CMake embeds them.
#pragma once

extern "C" {
extern const unsigned char shunt_gpu_image_move[];
extern const unsigned char shunt_gpu_image_reduce_float[];
extern const unsigned char shunt_gpu_image_reduce_float8[];
extern const unsigned char shunt_gpu_image_reduce_half[];
extern const unsigned char shunt_gpu_image_reduce_int[];
}
