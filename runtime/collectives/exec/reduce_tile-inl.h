// The loop that every reduction shares, compiled once per instruction set (see
// hwy/foreach_target.h).
//
// clang-format off
//          byte offset -->
//   src 0  [==== tile ====][==== tile ====]      one tile: 4 vectors
//   src 1  [==============][==============]      read src 0, fold src 1 .. n-1 in order, in
//   dst 0  [==============][==============]      registers, then store to every dst
//   dst 1  [==============][==============]
// clang-format on
//
// A tile's loads all come before its stores, which is what makes a dst that is also a src safe.
//
// Two things are plugged in. A Codec:
//   - Element, the type in memory; Lane, the type that is accumulated; kElementsPerLane.
//   - kTiles: cheap enough for tiles to matter; others go vector by vector and never stream.
//   - Load(d, p): accumulators for the elements at p, a vector of Lane or a Pair of them.
//   - Encode(d, acc): what memory holds for them, a vector with the tag Stored<D>.
// And an Op on vectors of Lane:
//   - Start(d, x) for source 0, Fold(d, acc, x, k) for source k, Finish(d, acc).

// NOLINTNEXTLINE: toggled per target, as Highway asks
#if defined(SHUNT_REDUCE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHUNT_REDUCE_TILE_INL_H_
#undef SHUNT_REDUCE_TILE_INL_H_
#else
#define SHUNT_REDUCE_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "runtime/collectives/exec/reduce_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace shunt::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Unaligned access. One lane goes through memcpy: Highway reads single lanes as a T, which must be
// aligned.
template <class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const std::byte* p) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) == 1) {
    T lane;
    std::memcpy(&lane, p, sizeof(T));
    return hn::Set(d, lane);
  } else {
    return hn::LoadU(d, reinterpret_cast<const T*>(p));
  }
}

template <class D>
HWY_INLINE void StoreBytes(hn::Vec<D> v, D d, std::byte* p) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) == 1) {
    const T lane = hn::GetLane(v);
    std::memcpy(p, &lane, sizeof(T));
  } else {
    hn::StoreU(v, d, reinterpret_cast<T*>(p));
  }
}

// Non-temporal store to p, aligned to the vector's own size. Highway's Stream writes at least 16
// bytes whatever the vector's size.
template <class D>
HWY_INLINE void StreamBytes(hn::Vec<D> v, D d, std::byte* p) {
  using T = hn::TFromD<D>;
  constexpr size_t kBytes = hn::MaxLanes(D()) * sizeof(T);
  if constexpr (kBytes >= 16) {
    hn::Stream(v, d, reinterpret_cast<T*>(p));
#if HWY_ARCH_X86_64
  } else if constexpr (kBytes == 8 && sizeof(T) < 8) {
    const hn::Repartition<int64_t, D> d64;
    _mm_stream_si64(reinterpret_cast<long long*>(p), hn::GetLane(hn::BitCast(d64, v)));
#endif
  } else {
    StoreBytes(v, d, p);
  }
}

// Two accumulators that share one vector of memory.
template <class V>
struct Pair {
  V first, second;
};

// An Op on either kind of accumulator.
template <class Op, class D, class V>
HWY_INLINE V Start(const Op& op, D d, V x) {
  return op.Start(d, x);
}
template <class Op, class D, class V>
HWY_INLINE Pair<V> Start(const Op& op, D d, Pair<V> x) {
  return {op.Start(d, x.first), op.Start(d, x.second)};
}
template <class Op, class D, class V>
HWY_INLINE V Fold(const Op& op, D d, V acc, V x, size_t k) {
  return op.Fold(d, acc, x, k);
}
template <class Op, class D, class V>
HWY_INLINE Pair<V> Fold(const Op& op, D d, Pair<V> acc, Pair<V> x, size_t k) {
  return {op.Fold(d, acc.first, x.first, k), op.Fold(d, acc.second, x.second, k)};
}
template <class Op, class D, class V>
HWY_INLINE V Finish(const Op& op, D d, V acc) {
  return op.Finish(d, acc);
}
template <class Op, class D, class V>
HWY_INLINE Pair<V> Finish(const Op& op, D d, Pair<V> acc) {
  return {op.Finish(d, acc.first), op.Finish(d, acc.second)};
}

// Memory and accumulator have the same type.
template <class T>
struct NativeCodec {
  using Element = T;
  using Lane = T;
  static constexpr size_t kElementsPerLane = 1;
  static constexpr bool kTiles = true;
  template <class D>
  using Stored = D;

  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p) {
    return LoadBytes(d, p);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Encode(D d, hn::Vec<D> v) {
    if constexpr (hwy::IsFloat<T>()) {
      return hn::IfThenElse(hn::IsNaN(v), QuietNaN(d), v);
    } else {
      return v;
    }
  }

 private:
  // Highway's NaN() has all mantissa bits set; hardware's and everybody's default has one.
  template <class D>
  static HWY_INLINE hn::Vec<D> QuietNaN(D d) {
    const hn::RebindToUnsigned<D> du;
    if constexpr (sizeof(T) == 4) {
      return hn::BitCast(d, hn::Set(du, 0x7fc00000u));
    } else {
      return hn::BitCast(d, hn::Set(du, 0x7ff8000000000000u));
    }
  }
};

// kFixed pointers in registers, or, if it is 0, any number of them in the caller's array.
template <class P, size_t kFixed>
class Pointers {
 public:
  HWY_INLINE Pointers(P const* pointers, size_t) {
    for (size_t k = 0; k < kFixed; ++k) pointers_[k] = pointers[k];
  }
  HWY_INLINE P operator[](size_t k) const { return pointers_[k]; }
  // Calls body(k) for k in [first, size).
  template <size_t kFirst, class Body>
  HWY_INLINE void ForEach(const Body& body) const {
    Unrolled<kFirst>(body, std::make_index_sequence<kFixed - kFirst>());
  }

 private:
  template <size_t kFirst, class Body, size_t... k>
  static HWY_INLINE void Unrolled(const Body& body, std::index_sequence<k...>) {
    (body(kFirst + k), ...);
  }

  P pointers_[kFixed];
};

template <class P>
class Pointers<P, 0> {
 public:
  HWY_INLINE Pointers(P const* pointers, size_t count) : pointers_(pointers), count_(count) {}
  HWY_INLINE P operator[](size_t k) const { return pointers_[k]; }
  template <size_t kFirst, class Body>
  HWY_INLINE void ForEach(const Body& body) const {
    for (size_t k = kFirst; k < count_; ++k) body(k);
  }

 private:
  P const* pointers_;
  size_t count_;
};

template <class Codec, class Op, class D, class Srcs, class Dsts>
HWY_INLINE void ReduceTile(D d, const Srcs& srcs, const Dsts& dsts, const Op& op, size_t at,
                           bool stream) {
  const typename Codec::template Stored<D> ds;
  constexpr size_t kStep =
      hn::MaxLanes(D()) * Codec::kElementsPerLane * sizeof(typename Codec::Element);
  const std::byte* s0 = srcs[0] + at;
  auto acc0 = Start(op, d, Codec::Load(d, s0));
  auto acc1 = Start(op, d, Codec::Load(d, s0 + kStep));
  auto acc2 = Start(op, d, Codec::Load(d, s0 + 2 * kStep));
  auto acc3 = Start(op, d, Codec::Load(d, s0 + 3 * kStep));
  srcs.template ForEach<1>([&](size_t k) HWY_ATTR {
    const std::byte* s = srcs[k] + at;
    acc0 = Fold(op, d, acc0, Codec::Load(d, s), k);
    acc1 = Fold(op, d, acc1, Codec::Load(d, s + kStep), k);
    acc2 = Fold(op, d, acc2, Codec::Load(d, s + 2 * kStep), k);
    acc3 = Fold(op, d, acc3, Codec::Load(d, s + 3 * kStep), k);
  });
  const auto out0 = Codec::Encode(d, Finish(op, d, acc0));
  const auto out1 = Codec::Encode(d, Finish(op, d, acc1));
  const auto out2 = Codec::Encode(d, Finish(op, d, acc2));
  const auto out3 = Codec::Encode(d, Finish(op, d, acc3));
  dsts.template ForEach<0>([&](size_t k) HWY_ATTR {
    std::byte* p = dsts[k] + at;
    if (stream && reinterpret_cast<uintptr_t>(p) % kStep == 0) {
      StreamBytes(out0, ds, p);
      StreamBytes(out1, ds, p + kStep);
      StreamBytes(out2, ds, p + 2 * kStep);
      StreamBytes(out3, ds, p + 3 * kStep);
    } else {
      StoreBytes(out0, ds, p);
      StoreBytes(out1, ds, p + kStep);
      StoreBytes(out2, ds, p + 2 * kStep);
      StoreBytes(out3, ds, p + 3 * kStep);
    }
  });
}

// Reduces whole tiles from element i on and returns the first element that is left.
template <class Codec, size_t kSrcs, size_t kDsts, class Op>
HWY_INLINE size_t ReduceTiles(const ReduceArgs& a, const Op& op, size_t i) {
  const hn::ScalableTag<typename Codec::Lane> d;
  constexpr size_t kTile = 4 * hn::MaxLanes(d) * Codec::kElementsPerLane;
  const Pointers<const std::byte*, kSrcs> srcs(a.srcs, a.src_count);
  const Pointers<std::byte*, kDsts> dsts(a.dsts, a.dst_count);
  const size_t count = a.count;
  const bool stream = a.stream;
  for (; count - i >= kTile; i += kTile) {
    ReduceTile<Codec>(d, srcs, dsts, op, i * sizeof(typename Codec::Element), stream);
  }
  return i;
}

// Reduces one vector D after the other from element i on, to element `end` at most.
template <class Codec, class Op, class D>
HWY_INLINE size_t ReduceVectors(D d, const ReduceArgs& a, const Op& op, size_t i, size_t end) {
  const typename Codec::template Stored<D> ds;
  constexpr size_t kStep = hn::MaxLanes(D()) * Codec::kElementsPerLane;
  for (; end - i >= kStep; i += kStep) {
    const size_t at = i * sizeof(typename Codec::Element);
    auto acc = Start(op, d, Codec::Load(d, a.srcs[0] + at));
    for (size_t k = 1; k < a.src_count; ++k) {
      acc = Fold(op, d, acc, Codec::Load(d, a.srcs[k] + at), k);
    }
    const auto out = Codec::Encode(d, Finish(op, d, acc));
    for (size_t k = 0; k < a.dst_count; ++k) StoreBytes(out, ds, a.dsts[k] + at);
  }
  return i;
}

// Elements before the first dst reaches a cache line boundary; 0 if it never does.
inline size_t HeadElements(const std::byte* dst, size_t element_bytes) {
  const size_t bytes = -reinterpret_cast<uintptr_t>(dst) % 64;
  return bytes % element_bytes == 0 ? bytes / element_bytes : 0;
}

// Reduces as many whole vectors as there are from element i on; returns the first element that is
// left. A function of its own, so that calls of a few elements do not pay for its registers.
template <class Codec, class Op>
HWY_NOINLINE size_t ReduceBulk(const ReduceArgs& a, const Op& op, size_t i) {
  const hn::ScalableTag<typename Codec::Lane> d;
  if constexpr (Codec::kTiles) {
    bool done = false;
    if constexpr (Op::kCommon && hn::MaxLanes(d) > 1) {
      if (a.src_count == 2 && a.dst_count == 2) {
        i = ReduceTiles<Codec, 2, 2>(a, op, i);
        done = true;
      } else if (a.src_count == 4 && a.dst_count == 4) {
        i = ReduceTiles<Codec, 4, 4>(a, op, i);
        done = true;
      }
    }
    if (!done) i = ReduceTiles<Codec, 0, 0>(a, op, i);
  }
  return ReduceVectors<Codec>(d, a, op, i, a.count);
}

// The whole reduction: [head lane by lane,] tiles, vectors, quarter vectors, lanes. LaneCodec: the
// codec for less than a vector, where Codec wants whole ones.
template <class Codec, class LaneCodec = Codec, class Op>
HWY_NOINLINE void ReduceAll(const ReduceArgs& a, const Op& op) {
  const hn::ScalableTag<typename Codec::Lane> d;
  const hn::CappedTag<typename Codec::Lane, 1> d1;
  constexpr size_t kLanes = hn::MaxLanes(d);
  size_t i = 0;
  if (a.stream && Codec::kTiles) {
    const size_t head = HeadElements(a.dsts[0], sizeof(typename Codec::Element));
    i = ReduceVectors<LaneCodec>(d1, a, op, 0, HWY_MIN(head, a.count));
  }
  if (a.count - i >= kLanes * Codec::kElementsPerLane) i = ReduceBulk<Codec>(a, op, i);
  if (Codec::kElementsPerLane > 1) i = ReduceVectors<LaneCodec>(d, a, op, i, a.count);
  if constexpr (kLanes >= 8) {
    const hn::CappedTag<typename Codec::Lane, kLanes / 4> quarter;
    i = ReduceVectors<LaneCodec>(quarter, a, op, i, a.count);
  }
  ReduceVectors<LaneCodec>(d1, a, op, i, a.count);
}

}  // namespace shunt::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
