// Copies to one or several destinations.
#include "runtime/collectives/exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/collectives/exec/copy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "runtime/collectives/exec/reduce.h"
#include "runtime/collectives/exec/reduce_kernels.h"
#include "runtime/collectives/exec/reduce_ops-inl.h"
#include "runtime/collectives/exec/reduce_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shunt::internal::HWY_NAMESPACE {

// A copy is a reduction of one source.
void CopyTarget(const ReduceArgs& a) { ReduceAll<NativeCodec<uint8_t>>(a, SumOp()); }

}  // namespace shunt::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

#include "absl/container/inlined_vector.h"

namespace shunt {
namespace internal {
HWY_EXPORT(CopyTarget);

void Copy(const ReduceArgs& args) { HWY_DYNAMIC_DISPATCH(CopyTarget)(args); }
}  // namespace internal

void CopyInto(const std::byte* src, absl::Span<std::byte* const> dsts, size_t bytes,
              StorePolicy policy) {
  if (bytes == 0) return;
  const bool stream = policy == StorePolicy::kStreaming;
  // For a single destination the C library's copy is as good as any.
  if (!stream && (dsts.size() == 1 || bytes <= 256)) {
    for (std::byte* dst : dsts) {
      if (dst != src) std::memcpy(dst, src, bytes);
    }
    return;
  }
  absl::InlinedVector<std::byte*, 64> others;
  for (std::byte* dst : dsts) {
    if (dst != src) others.push_back(dst);
  }
  if (others.empty()) return;
  internal::Copy({&src, 1, others.data(), others.size(), bytes, nullptr, 1, stream});
  if (stream) hwy::FlushStream();
}

}  // namespace shunt
#endif
