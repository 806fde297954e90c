// float32 and float64.
#include "runtime/collectives/exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/collectives/exec/reduce_float.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "runtime/collectives/exec/reduce_kernels.h"
#include "runtime/collectives/exec/reduce_ops-inl.h"
#include "runtime/collectives/exec/reduce_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shunt::internal::HWY_NAMESPACE {

template <class T>
void ReduceFloatAs(Redop redop, const ReduceArgs& a) {
  using Codec = NativeCodec<T>;
  switch (redop) {
    case Redop::kSum:
      return ReduceAll<Codec>(a, SumOp());
    case Redop::kProd:
      return ReduceAll<Codec>(a, ProdOp());
    case Redop::kMin:
      return ReduceAll<Codec>(a, MinOp());
    case Redop::kMax:
      return ReduceAll<Codec>(a, MaxOp());
    case Redop::kAvg:
      if ((a.divisor & (a.divisor - 1)) == 0) {
        return ReduceAll<Codec>(a, FloatScaleOp<T>{{}, T{1} / static_cast<T>(a.divisor)});
      }
      return ReduceAll<Codec>(a, FloatAvgOp<T>{{}, static_cast<T>(a.divisor)});
    case Redop::kPremulSum:
      return ReduceAll<Codec>(a, PremulOp<T>{a.scalars[0].bytes, sizeof(Scalar)});
  }
}

void ReduceFloatTarget(DataType dtype, Redop redop, const ReduceArgs& a) {
  if (dtype == DataType::kFloat32) {
    ReduceFloatAs<float>(redop, a);
  } else {
    ReduceFloatAs<double>(redop, a);
  }
}

}  // namespace shunt::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt::internal {
HWY_EXPORT(ReduceFloatTarget);

void ReduceFloat(DataType dtype, Redop redop, const ReduceArgs& args) {
  HWY_DYNAMIC_DISPATCH(ReduceFloatTarget)(dtype, redop, args);
}
}  // namespace shunt::internal
#endif
