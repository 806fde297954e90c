#include <immintrin.h>

#include "bench/bounds/kernels.h"

namespace shunt::bench {
namespace {

using Vector = __m128;
constexpr size_t kLanes = 4;

inline Vector Load(const float* p) { return _mm_loadu_ps(p); }
inline Vector Add(Vector a, Vector b) { return _mm_add_ps(a, b); }
inline void Store(float* p, Vector v) { _mm_storeu_ps(p, v); }
inline void Stream(float* p, Vector v) { _mm_stream_ps(p, v); }

#include "bench/bounds/kernels-inl.h"

}  // namespace

const StreamKernels kSse2StreamKernels = {"sse2", Dispatch<false>, Dispatch<true>};

}  // namespace shunt::bench
