// Which instruction sets the kernels are compiled for. Include before any Highway header.
//
// x86-64: the portable baseline, AVX2 and AVX-512; machines between the first two run the baseline.
// Arm: NEON (the kernels keep vectors in arrays and structs, which scalable vectors do not allow).
#pragma once

#ifdef HIGHWAY_HWY_DETECT_TARGETS_H_
#error "include runtime/collectives/exec/simd_targets.h before Highway"
#endif

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#include "hwy/detect_targets.h"
