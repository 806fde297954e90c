// The integer types. Sums, products and premul factors do not care for the sign: they run in
// unsigned lanes. 8-bit products and averages run in 32-bit lanes and are cut back, which wraps the
// same.
#include "runtime/collectives/exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/collectives/exec/reduce_int.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "runtime/collectives/exec/reduce_kernels.h"
#include "runtime/collectives/exec/reduce_ops-inl.h"
#include "runtime/collectives/exec/reduce_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shunt::internal::HWY_NAMESPACE {

// 8 bits in memory, 32-bit lanes.
struct WideByteCodec {
  using Element = uint8_t;
  using Lane = uint32_t;
  static constexpr size_t kElementsPerLane = 1;
  static constexpr bool kTiles = false;
  template <class D>
  using Stored = hn::Rebind<uint8_t, D>;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p) {
    return hn::PromoteTo(d, LoadBytes(Stored<D>(), p));
  }
  template <class D>
  static HWY_INLINE hn::Vec<Stored<D>> Encode(D d, hn::Vec<D> v) {
    const hn::RebindToSigned<D> di;  // in range, so that the saturation does nothing
    return hn::DemoteTo(Stored<D>(), hn::BitCast(di, hn::And(v, hn::Set(d, 0xffu))));
  }
};

// The sum of 8-bit integers, wrapped to 8 bits, divided in float32. Exact: |sum| < 2^8 keeps the
// rounded quotient on the right side of the next integer.
template <bool kSigned>
struct ByteAvgOp : SumOp {
  static constexpr bool kCommon = false;
  float divisor;

  template <class D, class V>
  HWY_INLINE V Finish(D d, V acc) const {
    const hn::RebindToSigned<D> di;
    const hn::RebindToFloat<D> df;
    const auto top = hn::ShiftLeft<24>(acc);
    auto sum = hn::BitCast(di, hn::ShiftRight<24>(top));
    if constexpr (kSigned) sum = hn::ShiftRight<24>(hn::BitCast(di, top));
    const auto quotient = hn::Div(hn::ConvertTo(df, sum), hn::Set(df, divisor));
    return hn::BitCast(d, hn::ConvertTo(di, quotient));
  }
};

// Divides lane by lane. Rare enough: see IntShiftAvgOp.
template <class T>
struct IntAvgOp : SumOp {
  static constexpr bool kCommon = false;
  T divisor;

  template <class D, class V>
  HWY_INLINE V Finish(D d, V acc) const {
    constexpr size_t kLanes = hn::MaxLanes(D());
    alignas(64) hwy::MakeUnsigned<T> sums[kLanes];
    hn::StoreU(acc, d, sums);
    for (size_t i = 0; i < kLanes; ++i) {
      sums[i] = static_cast<hwy::MakeUnsigned<T>>(static_cast<T>(sums[i]) / divisor);
    }
    return hn::LoadU(d, sums);
  }
};

// Divides by 2^shift, towards zero.
template <class T>
struct IntShiftAvgOp : SumOp {
  static constexpr bool kCommon = false;
  int shift;

  template <class D, class V>
  HWY_INLINE V Finish(D d, V acc) const {
    if constexpr (hwy::IsSigned<T>()) {
      const hn::RebindToSigned<D> di;
      const auto signed_acc = hn::BitCast(di, acc);
      const auto below = hn::Set(di, static_cast<T>((T{1} << shift) - 1));
      const auto bias = hn::IfThenElseZero(hn::Lt(signed_acc, hn::Zero(di)), below);
      return hn::BitCast(d, hn::ShiftRightSame(hn::Add(signed_acc, bias), shift));
    } else {
      return hn::ShiftRightSame(acc, shift);
    }
  }
};

template <class T>
void ReduceWideAs(Redop redop, const ReduceArgs& a) {
  using Unsigned = hwy::MakeUnsigned<T>;
  using Codec = NativeCodec<Unsigned>;
  switch (redop) {
    case Redop::kSum:
      return ReduceAll<Codec>(a, SumOp());
    case Redop::kProd:
      return ReduceAll<Codec>(a, ProdOp());
    case Redop::kMin:
      return ReduceAll<NativeCodec<T>>(a, MinOp());
    case Redop::kMax:
      return ReduceAll<NativeCodec<T>>(a, MaxOp());
    case Redop::kAvg:
      if ((a.divisor & (a.divisor - 1)) == 0) {
        return ReduceAll<Codec>(a, IntShiftAvgOp<T>{{}, __builtin_ctz(a.divisor)});
      }
      return ReduceAll<Codec>(a, IntAvgOp<T>{{}, static_cast<T>(a.divisor)});
    case Redop::kPremulSum:
      return ReduceAll<Codec>(a, PremulOp<Unsigned>{a.scalars[0].bytes, sizeof(Scalar)});
  }
}

template <class T>
void ReduceByteAs(Redop redop, const ReduceArgs& a) {
  switch (redop) {
    case Redop::kSum:
      return ReduceAll<NativeCodec<uint8_t>>(a, SumOp());
    case Redop::kProd:
      return ReduceAll<WideByteCodec>(a, ProdOp());
    case Redop::kMin:
      return ReduceAll<NativeCodec<T>>(a, MinOp());
    case Redop::kMax:
      return ReduceAll<NativeCodec<T>>(a, MaxOp());
    case Redop::kAvg:
      return ReduceAll<WideByteCodec>(
          a, ByteAvgOp<hwy::IsSigned<T>()>{{}, static_cast<float>(a.divisor)});
    case Redop::kPremulSum:
      // Only the low byte of a factor counts; the lanes read 32 bits, which Scalar has.
      return ReduceAll<WideByteCodec>(a, PremulOp<uint32_t>{a.scalars[0].bytes, sizeof(Scalar)});
  }
}

void ReduceIntTarget(DataType dtype, Redop redop, const ReduceArgs& a) {
  switch (dtype) {
    case DataType::kInt8:
      return ReduceByteAs<int8_t>(redop, a);
    case DataType::kUint8:
      return ReduceByteAs<uint8_t>(redop, a);
    case DataType::kInt32:
      return ReduceWideAs<int32_t>(redop, a);
    case DataType::kUint32:
      return ReduceWideAs<uint32_t>(redop, a);
    case DataType::kInt64:
      return ReduceWideAs<int64_t>(redop, a);
    case DataType::kUint64:
      return ReduceWideAs<uint64_t>(redop, a);
    default:
      return;
  }
}

}  // namespace shunt::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt::internal {
HWY_EXPORT(ReduceIntTarget);

void ReduceInt(DataType dtype, Redop redop, const ReduceArgs& args) {
  HWY_DYNAMIC_DISPATCH(ReduceIntTarget)(dtype, redop, args);
}
}  // namespace shunt::internal
#endif
