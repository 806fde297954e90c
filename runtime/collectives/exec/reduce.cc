#include "runtime/collectives/exec/reduce.h"

#include "hwy/cache_control.h"
#include "runtime/collectives/exec/fp_mode.h"
#include "runtime/collectives/exec/reduce_kernels.h"

namespace shunt {
namespace {

bool IsCopy(const ReduceSpec& spec, size_t src_count) {
  if (src_count != 1 || spec.redop == Redop::kPremulSum) return false;
  return spec.redop != Redop::kAvg || spec.divisor == 1;
}

}  // namespace

void ReduceInto(const ReduceSpec& spec, absl::Span<const std::byte* const> srcs,
                absl::Span<const Scalar> scalars, absl::Span<std::byte* const> dsts, size_t count) {
  if (count == 0) return;
  if (IsCopy(spec, srcs.size())) {
    CopyInto(srcs[0], dsts, count * SizeOf(spec.dtype), spec.store);
    return;
  }
  const bool stream = spec.store == StorePolicy::kStreaming;
  const internal::ReduceArgs args = {srcs.data(), srcs.size(),    dsts.data(),  dsts.size(),
                                     count,       scalars.data(), spec.divisor, stream};
  if (IsInteger(spec.dtype)) {
    internal::ReduceInt(spec.dtype, spec.redop, args);
  } else {
    const internal::DefaultFpMode mode;
    if (spec.dtype == DataType::kFloat32 || spec.dtype == DataType::kFloat64) {
      internal::ReduceFloat(spec.dtype, spec.redop, args);
    } else {
      internal::ReduceSmallFloat(spec.dtype, spec.redop, args);
    }
  }
  if (stream) hwy::FlushStream();
}

}  // namespace shunt
