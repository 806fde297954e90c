// The reductions, on lanes: Start for source 0, Fold for source k, then Finish. They are those of
// runtime/collectives/exec/reduce_ops-inl.h.
#pragma once

#include <cstdint>

#include "runtime/gpu/kernels/codecs.h"
#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu {

template <class Codec>
struct SumOp {
  using Lane = typename Codec::Lane;
  SHUNT_DEVICE explicit SumOp(const ReduceHead&) {}
  SHUNT_DEVICE Lane Start(Lane x, Lane) const { return x; }
  SHUNT_DEVICE Lane Fold(Lane acc, Lane x, Lane) const { return Add(acc, x); }
  SHUNT_DEVICE Lane Finish(Lane acc) const { return acc; }
  // What Start and Fold get as their last argument.
  template <class Params>
  SHUNT_DEVICE Lane Factor(const Params&, uint32_t) const {
    return Lane{};
  }
};

template <class Codec>
struct ProdOp : SumOp<Codec> {
  using Lane = typename Codec::Lane;
  using SumOp<Codec>::SumOp;
  SHUNT_DEVICE Lane Fold(Lane acc, Lane x, Lane) const { return Mul(acc, x); }
};

template <class Codec, bool kMax>
struct ExtremeOp : SumOp<Codec> {
  using Lane = typename Codec::Lane;
  using SumOp<Codec>::SumOp;
  SHUNT_DEVICE Lane Fold(Lane acc, Lane x, Lane) const { return Better(x, acc) ? x : acc; }

 private:
  static SHUNT_DEVICE bool Better(Lane x, Lane acc) {
    if constexpr (Codec::kFloat) {
      return (kMax ? x > acc : x < acc) || x != x;
    } else if constexpr (Codec::kSigned) {
      using S = typename Codec::SignedLane;
      return kMax ? static_cast<S>(x) > static_cast<S>(acc)
                  : static_cast<S>(x) < static_cast<S>(acc);
    } else {
      return kMax ? x > acc : x < acc;
    }
  }
};

// Multiply, round, add.
template <class Codec>
struct PremulOp {
  using Lane = typename Codec::Lane;
  SHUNT_DEVICE explicit PremulOp(const ReduceHead&) {}
  SHUNT_DEVICE Lane Start(Lane x, Lane factor) const { return Mul(x, factor); }
  SHUNT_DEVICE Lane Fold(Lane acc, Lane x, Lane factor) const { return Add(acc, Mul(x, factor)); }
  SHUNT_DEVICE Lane Finish(Lane acc) const { return acc; }
  template <class Params>
  SHUNT_DEVICE Lane Factor(const Params& p, uint32_t source) const {
    return Codec::Decode(static_cast<typename Codec::Raw>(p.scalar[source]));
  }
};

// The sum, divided once. By a power of two: multiplied by the reciprocal, or shifted, which is the
// same to the bit.
template <class Codec>
struct AvgOp : SumOp<Codec> {
  using Lane = typename Codec::Lane;
  SHUNT_DEVICE explicit AvgOp(const ReduceHead& p)
      : SumOp<Codec>(p), power_((p.divisor & (p.divisor - 1)) == 0) {
    if constexpr (Codec::kFloat) {
      const Lane divisor = static_cast<Lane>(p.divisor);
      divisor_ = power_ ? Div(Lane{1}, divisor) : divisor;
    } else {
      divisor_ = static_cast<Lane>(p.divisor);
    }
  }
  SHUNT_DEVICE Lane Finish(Lane acc) const {
    if constexpr (Codec::kFloat) {
      return power_ ? Mul(acc, divisor_) : Div(acc, divisor_);
    } else {
      const Lane wrapped = Codec::Decode(Codec::Encode(acc));
      if constexpr (Codec::kSigned) {
        using S = typename Codec::SignedLane;
        // Magnitudes, since the smallest number over -1 does not exist and its magnitude does.
        const bool negative = static_cast<S>(wrapped) < 0;
        const Lane quotient = (negative ? Lane{0} - wrapped : wrapped) / divisor_;
        return negative ? Lane{0} - quotient : quotient;
      } else {
        return wrapped / divisor_;
      }
    }
  }

 private:
  bool power_;
  Lane divisor_;
};

// Sum or average, told apart at run time: for the kernels that both deserve.
template <class Codec>
struct SumOrAvgOp : AvgOp<Codec> {
  using Lane = typename Codec::Lane;
  SHUNT_DEVICE explicit SumOrAvgOp(const ReduceHead& p)
      : AvgOp<Codec>(p), avg_(p.redop == 4 /* kAvg */) {}
  SHUNT_DEVICE Lane Finish(Lane acc) const { return avg_ ? AvgOp<Codec>::Finish(acc) : acc; }

 private:
  bool avg_;
};

}  // namespace shunt::gpu
