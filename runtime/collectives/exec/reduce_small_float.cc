// float16, bfloat16 and both float8: float32 lanes, one rounding at the end.
//
// The conversions are written in integer arithmetic, alike on every instruction set.
// Highway 1.0.3's own truncate for bfloat16 and, in its baseline, for float16.
#include "runtime/collectives/exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/collectives/exec/reduce_small_float.cc"
#include <memory>
#include <type_traits>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "runtime/collectives/exec/reduce_kernels.h"
#include "runtime/collectives/exec/reduce_ops-inl.h"
#include "runtime/collectives/exec/reduce_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shunt::internal::HWY_NAMESPACE {

// float32 bits, rounded to nearest even at bit 16; the low half is rubbish. NaN comes out in its
// one form.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundToBfloat16(D, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Set(du, 0x7fc00000u), rounded);
}

struct Bfloat16Codec {
  using Element = uint16_t;
  using Lane = float;
  static constexpr size_t kElementsPerLane = 1;
  static constexpr bool kTiles = false;
  template <class D>
  using Stored = hn::Rebind<uint16_t, D>;

  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, LoadBytes(Stored<D>(), p))));
  }
  template <class D>
  static HWY_INLINE hn::Vec<Stored<D>> Encode(D d, hn::Vec<D> v) {
    const hn::RebindToSigned<D> di;
    const auto code = hn::ShiftRight<16>(RoundToBfloat16(d, v));
    return hn::DemoteTo(Stored<D>(), hn::BitCast(di, code));
  }
};

// Two neighbours in one 32-bit lane, taken apart and put together by shifts and masks alone.
// Vectors only; little-endian.
struct Bfloat16PairCodec {
  using Element = uint16_t;
  using Lane = float;
  static constexpr size_t kElementsPerLane = 2;
  static constexpr bool kTiles = true;
  template <class D>
  using Stored = hn::RebindToUnsigned<D>;

  template <class D>
  static HWY_INLINE Pair<hn::Vec<D>> Load(D d, const std::byte* p) {
    const Stored<D> du;
    const auto both = LoadBytes(du, p);
    return {hn::BitCast(d, hn::ShiftLeft<16>(both)),
            hn::BitCast(d, hn::And(both, hn::Set(du, 0xffff0000u)))};
  }
  template <class D>
  static HWY_INLINE hn::Vec<Stored<D>> Encode(D d, Pair<hn::Vec<D>> v) {
    const Stored<D> du;
    return hn::Or(hn::ShiftRight<16>(RoundToBfloat16(d, v.first)),
                  hn::And(RoundToBfloat16(d, v.second), hn::Set(du, 0xffff0000u)));
  }
};

// A binary float with kExp exponent and kMan mantissa bits and a sign, subnormals as usual.
// kInf: the all-ones exponent means infinity and NaN, as in IEEE; otherwise only all ones is NaN
// (the "fn" of float8 e4m3fn). Rounding gives at most kLimit, a magnitude in the format's own bits.
template <class T, int kExp, int kMan, bool kInf, uint32_t kNan, uint32_t kLimit>
struct MiniCodec {
  using Element = T;
  using Lane = float;
  static constexpr size_t kElementsPerLane = 1;
  static constexpr bool kTiles = false;
  template <class D>
  using Stored = hn::Rebind<T, D>;

  static constexpr int kBias = (1 << (kExp - 1)) - 1;
  static constexpr uint32_t kSign = 1u << (kExp + kMan);
  static constexpr uint32_t kExponentMask = ((1u << kExp) - 1) << kMan;
  static constexpr int kSignShift = 31 - kExp - kMan;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  // Bits of the float32 that is the smallest normal number of the format.
  static constexpr uint32_t kMinNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // A float32 whose last bit weighs as much as the format's last subnormal bit.
  static constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 23 + 1 - kBias - kMan) << 23;
  // The weight of that bit.
  static constexpr uint32_t kUnit = static_cast<uint32_t>(127 + 1 - kBias - kMan) << 23;

  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto raw = hn::PromoteTo(du, LoadBytes(Stored<D>(), p));
    const auto sign = hn::ShiftLeft<kSignShift>(hn::And(raw, hn::Set(du, kSign)));
    const auto magnitude = hn::And(raw, hn::Set(du, kSign - 1));
    const auto signed_magnitude = hn::BitCast(di, magnitude);
    auto bits = hn::Add(hn::ShiftLeft<23 - kMan>(magnitude), hn::Set(du, kRebias));
    const auto unit = hn::BitCast(d, hn::Set(du, kUnit));
    const auto subnormal = hn::BitCast(du, hn::Mul(hn::ConvertTo(d, signed_magnitude), unit));
    bits = hn::IfThenElse(
        hn::RebindMask(du, hn::Lt(signed_magnitude, hn::Set(di, int32_t{1} << kMan))), subnormal,
        bits);
    constexpr int32_t kSpecial = static_cast<int32_t>(kInf ? kExponentMask : kNan);
    const auto special = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, kSpecial - 1)));
    bits = hn::Or(bits, hn::IfThenElseZero(special, hn::Set(du, kInf ? 0x7f800000u : 0x7fc00000u)));
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  template <class D>
  static HWY_INLINE hn::Vec<Stored<D>> Encode(D d, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(du, v);
    const auto sign = hn::And(hn::ShiftRight<kSignShift>(bits), hn::Set(du, kSign));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    // Normal: round to nearest even on the bits; a carry runs into the exponent as it should.
    const auto odd = hn::And(hn::ShiftRight<23 - kMan>(magnitude), hn::Set(du, 1u));
    const auto rounded =
        hn::Add(magnitude, hn::Add(odd, hn::Set(du, (1u << (22 - kMan)) - 1u - kRebias)));
    const auto normal = hn::BitCast(di, hn::ShiftRight<23 - kMan>(rounded));
    // Subnormal: an addition in float32 rounds at the right bit.
    const auto magic = hn::BitCast(d, hn::Set(du, kMagic));
    const auto subnormal =
        hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), magic)), hn::BitCast(di, magic));
    auto code = hn::IfThenElse(
        hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, static_cast<int32_t>(kMinNormal))),
        subnormal, normal);
    code = hn::Min(code, hn::Set(di, static_cast<int32_t>(kLimit)));
    code = hn::Or(code, hn::BitCast(di, sign));
    const auto nan = hn::RebindMask(di, hn::IsNaN(v));
    return hn::DemoteTo(Stored<D>(),
                        hn::IfThenElse(nan, hn::Set(di, static_cast<int32_t>(kNan)), code));
  }
};

using Float16Codec = MiniCodec<uint16_t, 5, 10, true, 0x7e00, 0x7c00>;

#if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3) && !defined(HWY_DISABLE_F16C)
// The same by F16C's instructions.
struct FastFloat16Codec : Float16Codec {
  static constexpr bool kTiles = true;

  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::BitCast(dh, LoadBytes(Stored<D>(), p)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<Stored<D>> Encode(D d, hn::Vec<D> v) {
    const hn::Rebind<hwy::float16_t, D> dh;
    const hn::RebindToUnsigned<D> du;
    const auto nan = hn::BitCast(d, hn::Set(du, 0x7fc00000u));
    return hn::BitCast(Stored<D>(), hn::DemoteTo(dh, hn::IfThenElse(hn::IsNaN(v), nan, v)));
  }
};
#else
using FastFloat16Codec = Float16Codec;
#endif

using E4M3Codec = MiniCodec<uint8_t, 4, 3, false, 0x7f, 0x7e>;
using E5M2Codec = MiniCodec<uint8_t, 5, 2, true, 0x7e, 0x7b>;
using E5M2KeepInfCodec = MiniCodec<uint8_t, 5, 2, true, 0x7e, 0x7c>;  // min and max: no rounding

// The factors decoded once for the call.
template <class Codec, class LaneCodec>
void ReducePremul(const ReduceArgs& a) {
  constexpr size_t kOnStack = 64;
  float on_stack[kOnStack];
  std::unique_ptr<float[]> on_heap;
  float* factors = on_stack;
  if (a.src_count > kOnStack) {
    on_heap = std::make_unique<float[]>(a.src_count);
    factors = on_heap.get();
  }
  const hn::CappedTag<float, 1> d1;
  for (size_t k = 0; k < a.src_count; ++k) {
    factors[k] = hn::GetLane(LaneCodec::Load(d1, a.scalars[k].bytes));
  }
  ReduceAll<Codec, LaneCodec>(
      a, PremulOp<float>{reinterpret_cast<const std::byte*>(factors), sizeof(float)});
}

template <class Codec, class LaneCodec = Codec, class MinMaxCodec = Codec>
void ReduceSmallAs(Redop redop, const ReduceArgs& a) {
  using MinMaxLaneCodec =
      std::conditional_t<std::is_same_v<Codec, MinMaxCodec>, LaneCodec, MinMaxCodec>;
  switch (redop) {
    case Redop::kSum:
      return ReduceAll<Codec, LaneCodec>(a, SumOp());
    case Redop::kProd:
      return ReduceAll<Codec, LaneCodec>(a, ProdOp());
    case Redop::kMin:
      return ReduceAll<MinMaxCodec, MinMaxLaneCodec>(a, MinOp());
    case Redop::kMax:
      return ReduceAll<MinMaxCodec, MinMaxLaneCodec>(a, MaxOp());
    case Redop::kAvg:
      return ReduceAll<Codec, LaneCodec>(a, FloatAvgOp<float>{{}, static_cast<float>(a.divisor)});
    case Redop::kPremulSum:
      return ReducePremul<Codec, LaneCodec>(a);
  }
}

void ReduceSmallFloatTarget(DataType dtype, Redop redop, const ReduceArgs& a) {
  switch (dtype) {
    case DataType::kFloat16:
      return ReduceSmallAs<FastFloat16Codec>(redop, a);
    case DataType::kBfloat16:
      return ReduceSmallAs<Bfloat16PairCodec, Bfloat16Codec>(redop, a);
    case DataType::kFloat8E4M3:
      return ReduceSmallAs<E4M3Codec>(redop, a);
    case DataType::kFloat8E5M2:
      return ReduceSmallAs<E5M2Codec, E5M2Codec, E5M2KeepInfCodec>(redop, a);
    default:
      return;
  }
}

}  // namespace shunt::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt::internal {
HWY_EXPORT(ReduceSmallFloatTarget);

void ReduceSmallFloat(DataType dtype, Redop redop, const ReduceArgs& args) {
  HWY_DYNAMIC_DISPATCH(ReduceSmallFloatTarget)(dtype, redop, args);
}
}  // namespace shunt::internal
#endif
