// The reductions, on accumulator lanes. Compiled once per instruction set.

// NOLINTNEXTLINE: toggled per target, as Highway asks
#if defined(SHUNT_REDUCE_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHUNT_REDUCE_OPS_INL_H_
#undef SHUNT_REDUCE_OPS_INL_H_
#else
#define SHUNT_REDUCE_OPS_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "hwy/highway.h"
#include "runtime/collectives/exec/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace shunt::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Integer sums and products are made in unsigned lanes, so that they wrap.
//
// kCommon: worth loops of their own for two and four ranks.
struct SumOp {
  static constexpr bool kCommon = true;

  template <class D, class V>
  HWY_INLINE V Start(D, V x) const {
    return x;
  }
  template <class D, class V>
  HWY_INLINE V Fold(D, V acc, V x, size_t) const {
    return hn::Add(acc, x);
  }
  template <class D, class V>
  HWY_INLINE V Finish(D, V acc) const {
    return acc;
  }
};

struct ProdOp : SumOp {
  static constexpr bool kCommon = false;

  template <class D, class V>
  HWY_INLINE V Fold(D, V acc, V x, size_t) const {
    return hn::Mul(acc, x);
  }
};

// Highway's own Min and Max leave NaN and the sign of zero to the instruction set.
struct MinOp : SumOp {
  static constexpr bool kCommon = false;

  template <class D, class V>
  HWY_INLINE V Fold(D, V acc, V x, size_t) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Or(hn::Lt(x, acc), hn::IsNaN(x)), x, acc);
    } else {
      return hn::Min(acc, x);
    }
  }
};

struct MaxOp : SumOp {
  static constexpr bool kCommon = false;

  template <class D, class V>
  HWY_INLINE V Fold(D, V acc, V x, size_t) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Or(hn::Gt(x, acc), hn::IsNaN(x)), x, acc);
    } else {
      return hn::Max(acc, x);
    }
  }
};

// Multiply, round, add: this file must be compiled with -ffp-contract=off.
template <class Lane>
struct PremulOp {
  static constexpr bool kCommon = false;

  const std::byte* factors;  // rank k's, as a Lane, at k * stride
  size_t stride;

  template <class D, class V>
  HWY_INLINE V Start(D d, V x) const {
    return hn::Mul(x, Factor(d, 0));
  }
  template <class D, class V>
  HWY_INLINE V Fold(D d, V acc, V x, size_t k) const {
    return hn::Add(acc, hn::Mul(x, Factor(d, k)));
  }
  template <class D, class V>
  HWY_INLINE V Finish(D, V acc) const {
    return acc;
  }

 private:
  template <class D>
  HWY_INLINE hn::Vec<D> Factor(D d, size_t k) const {
    Lane lane;
    std::memcpy(&lane, factors + k * stride, sizeof(Lane));
    return hn::Set(d, lane);
  }
};

template <class Lane>
struct FloatAvgOp : SumOp {
  static constexpr bool kCommon = false;
  Lane divisor;

  template <class D, class V>
  HWY_INLINE V Finish(D d, V acc) const {
    return hn::Div(acc, hn::Set(d, divisor));
  }
};

// Dividing by a power of two is the same as multiplying by its reciprocal, to the bit, and much
// cheaper.
template <class Lane>
struct FloatScaleOp : SumOp {
  Lane reciprocal;

  template <class D, class V>
  HWY_INLINE V Finish(D d, V acc) const {
    return hn::Mul(acc, hn::Set(d, reciprocal));
  }
};

}  // namespace shunt::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
