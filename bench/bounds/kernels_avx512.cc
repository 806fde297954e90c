#include <immintrin.h>

#include "bench/bounds/kernels.h"

namespace shunt::bench {
namespace {

using Vector = __m512;
constexpr size_t kLanes = 16;

inline Vector Load(const float* p) { return _mm512_loadu_ps(p); }
inline Vector Add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
inline void Store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
inline void Stream(float* p, Vector v) { _mm512_stream_ps(p, v); }

#include "bench/bounds/kernels-inl.h"

}  // namespace

const StreamKernels kAvx512StreamKernels = {"avx512", Dispatch<false>, Dispatch<true>};

}  // namespace shunt::bench
