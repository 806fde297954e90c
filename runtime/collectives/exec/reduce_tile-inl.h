// The loop that every reduction shares, compiled once per instruction set (see
// hwy/foreach_target.h).
//
//          byte offset ──►
//   src 0  ████████ tile ████████ tile ...      one tile: 4 vectors
//   src 1  ████████      ████████               read src 0, fold src 1 .. n-1 in order, in
//   registers, dst 0  ████████      ████████               then store to every dst dst 1  ████████
//   ████████
//
// A tile's loads all come before its stores, which is what makes a dst that is also a src safe.
//
// Two things are plugged in:
//   Codec: the type in memory, the type of an accumulator lane, and how one becomes the other.
//   Op:    Start(d, x) for source 0, Fold(d, acc, x, k) for source k, Finish(d, acc).

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

// Memory and accumulator have the same type.
template <class T>
struct NativeCodec {
  using Element = T;
  using Lane = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* p) {
    return LoadBytes(d, p);
  }
  template <class D>
  using Stored = D;
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

// Reduces the elements of one vector D at byte offset `at`.
template <class Codec, class Op, class D>
HWY_INLINE void ReduceVector(D d, const ReduceArgs& a, const Op& op, size_t at) {
  auto acc = op.Start(d, Codec::Load(d, a.srcs[0] + at));
  for (size_t k = 1; k < a.src_count; ++k) {
    acc = op.Fold(d, acc, Codec::Load(d, a.srcs[k] + at), k);
  }
  const typename Codec::template Stored<D> ds;
  const auto out = Codec::Encode(d, op.Finish(d, acc));
  for (size_t k = 0; k < a.dst_count; ++k) StoreBytes(out, ds, a.dsts[k] + at);
}

template <class Codec, class Op, class D>
HWY_INLINE void ReduceTile(D d, const ReduceArgs& a, const Op& op, size_t at, bool stream) {
  const typename Codec::template Stored<D> ds;
  constexpr size_t kStep = hn::MaxLanes(D()) * sizeof(typename Codec::Element);
  const std::byte* s = a.srcs[0] + at;
  auto acc0 = op.Start(d, Codec::Load(d, s));
  auto acc1 = op.Start(d, Codec::Load(d, s + kStep));
  auto acc2 = op.Start(d, Codec::Load(d, s + 2 * kStep));
  auto acc3 = op.Start(d, Codec::Load(d, s + 3 * kStep));
  for (size_t k = 1; k < a.src_count; ++k) {
    s = a.srcs[k] + at;
    acc0 = op.Fold(d, acc0, Codec::Load(d, s), k);
    acc1 = op.Fold(d, acc1, Codec::Load(d, s + kStep), k);
    acc2 = op.Fold(d, acc2, Codec::Load(d, s + 2 * kStep), k);
    acc3 = op.Fold(d, acc3, Codec::Load(d, s + 3 * kStep), k);
  }
  const auto out0 = Codec::Encode(d, op.Finish(d, acc0));
  const auto out1 = Codec::Encode(d, op.Finish(d, acc1));
  const auto out2 = Codec::Encode(d, op.Finish(d, acc2));
  const auto out3 = Codec::Encode(d, op.Finish(d, acc3));
  for (size_t k = 0; k < a.dst_count; ++k) {
    std::byte* p = a.dsts[k] + at;
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
  }
}

// Elements before the first dst reaches a cache line boundary; 0 if it never does.
inline size_t HeadElements(const std::byte* dst, size_t element_bytes) {
  const size_t bytes = -reinterpret_cast<uintptr_t>(dst) % 64;
  return bytes % element_bytes == 0 ? bytes / element_bytes : 0;
}

// The whole reduction: [head lane by lane,] tiles, vectors, [16-byte vectors,] lanes.
template <class Codec, class Op>
HWY_NOINLINE void ReduceAll(const ReduceArgs& a, const Op& op) {
  using Element = typename Codec::Element;
  using Lane = typename Codec::Lane;
  const hn::ScalableTag<Lane> d;
  const hn::CappedTag<Lane, 1> d1;
  constexpr size_t kLanes = hn::MaxLanes(d);
  size_t i = 0;
  if (a.stream) {
    const size_t head = HWY_MIN(HeadElements(a.dsts[0], sizeof(Element)), a.count);
    for (; i < head; ++i) ReduceVector<Codec>(d1, a, op, i * sizeof(Element));
  }
  for (; a.count - i >= 4 * kLanes; i += 4 * kLanes) {
    ReduceTile<Codec>(d, a, op, i * sizeof(Element), a.stream);
  }
  for (; a.count - i >= kLanes; i += kLanes) ReduceVector<Codec>(d, a, op, i * sizeof(Element));
  if constexpr (kLanes > 16) {  // 8-bit lanes: a tail of up to 63 is too long for single lanes
    const hn::CappedTag<Lane, 16> d16;
    for (; a.count - i >= 16; i += 16) ReduceVector<Codec>(d16, a, op, i * sizeof(Element));
  }
  for (; i < a.count; ++i) ReduceVector<Codec>(d1, a, op, i * sizeof(Element));
}

}  // namespace shunt::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
