#include <immintrin.h>

#include "bench/bounds/kernels.h"

namespace shunt::bench {
namespace {

using Vector = __m256;
constexpr size_t kLanes = 8;

inline Vector Load(const float* p) { return _mm256_loadu_ps(p); }
inline Vector Add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
inline void Store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
inline void Stream(float* p, Vector v) { _mm256_stream_ps(p, v); }

#include "bench/bounds/kernels-inl.h"

}  // namespace

const StreamKernels kAvx2StreamKernels = {"avx2", Dispatch<false>, Dispatch<true>};

}  // namespace shunt::bench
