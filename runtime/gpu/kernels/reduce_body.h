// The reduction of one thread: reads an element of every source, writes it to every destination.
//
// Where all pointers agree modulo 16, threads take vectors, and the few elements before and behind
// them are the last block's; otherwise single elements. A thread's loads all come before its stores
// and nobody else reads what it writes, which makes a destination that is also a source safe.
#pragma once

#include <cstdint>

#include "runtime/core/types.h"
#include "runtime/gpu/kernels/operators.h"

namespace shunt::gpu {

// The part of the parameters that one step of the grid's y works on.
struct ReduceStep {
  uint64_t shift;  // of the sources, in bytes
  uint32_t first, destinations;
};

template <class Codec, class Op, class Params>
SHUNT_DEVICE void ReduceElement(const Params& p, const Op& op, const ReduceStep& step,
                                uint64_t index, bool natural) {
  using Lane = typename Codec::Lane;
  // Of exactly kBytes, unlike Raw.
  using Stored =
      std::conditional_t<Codec::kBytes == 1, uint8_t,
                         std::conditional_t<Codec::kBytes == 2, uint16_t, typename Codec::Raw>>;
  constexpr uint32_t kBatch = 4;
  const uint64_t at = index * Codec::kBytes;
  Lane acc{};
  for (uint32_t first = 0; first < p.sources; first += kBatch) {
    Stored raw[kBatch] = {};
    SHUNT_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      if (first + k >= p.sources) continue;
      const uint64_t address = p.source[first + k] + step.shift + at;
      raw[k] = natural ? LoadAligned<Stored>(address) : LoadBytes<Stored>(address);
    }
    SHUNT_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      if (first + k >= p.sources) continue;
      const Lane x = Codec::Decode(raw[k]);
      const Lane factor = op.Factor(p, first + k);
      acc = first + k == 0 ? op.Start(x, factor) : op.Fold(acc, x, factor);
    }
  }
  const auto out = static_cast<Stored>(Codec::Encode(op.Finish(acc)));
  for (uint32_t d = 0; d < step.destinations; ++d) {
    const uint64_t address = p.destination[step.first + d] + at;
    if (natural) {
      StoreAligned<Stored>(address, out);
    } else {
      StoreBytes<Stored>(address, out);
    }
  }
}

template <class Codec, class Op, class Params>
SHUNT_DEVICE void StartOrFold(const Params& p, const Op& op, const Vec16& v, uint32_t source,
                              typename Codec::Lane (&acc)[kLanes<Codec>]) {
  const typename Codec::Lane factor = op.Factor(p, source);
  SHUNT_UNROLL
  for (uint32_t lane = 0; lane < kLanes<Codec>; ++lane) {
    const typename Codec::Lane x = Codec::Decode(RawAt<Codec>(v, lane));
    acc[lane] = source == 0 ? op.Start(x, factor) : op.Fold(acc[lane], x, factor);
  }
}

template <class Codec, class Op, class Params>
SHUNT_DEVICE void FinishVector(const Params& p, const Op& op, const ReduceStep& step, uint64_t at,
                               typename Codec::Lane (&acc)[kLanes<Codec>]) {
  SHUNT_UNROLL
  for (uint32_t lane = 0; lane < kLanes<Codec>; ++lane) acc[lane] = op.Finish(acc[lane]);
  const Vec16 out = Encoded<Codec>(acc);
  SHUNT_UNROLL_BY(4)
  for (uint32_t d = 0; d < step.destinations; ++d) {
    StoreStreaming(p.destination[step.first + d] + at, out);
  }
}

// Any number of sources, four loads in flight.
template <class Codec, class Op, class Params>
SHUNT_DEVICE void ReduceVector(const Params& p, const Op& op, const ReduceStep& step, uint64_t at) {
  constexpr uint32_t kBatch = 4;
  typename Codec::Lane acc[kLanes<Codec>] = {};
  for (uint32_t first = 0; first < p.sources; first += kBatch) {
    Vec16 raw[kBatch];
    SHUNT_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      if (first + k < p.sources) raw[k] = LoadStreaming(p.source[first + k] + step.shift + at);
    }
    SHUNT_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      if (first + k < p.sources) StartOrFold<Codec>(p, op, raw[k], first + k, acc);
    }
  }
  FinishVector<Codec>(p, op, step, at, acc);
}

// kSources of them, kVectors vectors of each in flight.
template <class Codec, class Op, uint32_t kSources, uint32_t kVectors, class Params>
SHUNT_DEVICE void ReduceFixed(const Params& p, const Op& op, const ReduceStep& step, uint64_t at,
                              uint64_t stride) {
  Vec16 raw[kVectors][kSources];
  SHUNT_UNROLL
  for (uint32_t v = 0; v < kVectors; ++v) {
    SHUNT_UNROLL
    for (uint32_t k = 0; k < kSources; ++k) {
      raw[v][k] = LoadStreaming(p.source[k] + step.shift + at + v * stride);
    }
  }
  SHUNT_UNROLL
  for (uint32_t v = 0; v < kVectors; ++v) {
    typename Codec::Lane acc[kLanes<Codec>] = {};
    SHUNT_UNROLL
    for (uint32_t k = 0; k < kSources; ++k) StartOrFold<Codec>(p, op, raw[v][k], k, acc);
    FinishVector<Codec>(p, op, step, at + v * stride, acc);
  }
}

// kSources 0: any number.
template <class Codec, class Op, uint32_t kSources, uint32_t kVectors, class Params>
SHUNT_DEVICE void ReduceVectors(const Params& p, const Op& op, const ReduceStep& step,
                                uint64_t begin, uint64_t vectors, const Where& w) {
  const uint64_t tile = uint64_t{w.threads} * kVectors;
  for (uint64_t first = w.block * tile; first < vectors; first += w.blocks * tile) {
    const uint64_t mine = first + w.thread;
    if constexpr (kSources > 0) {
      if (first + tile <= vectors) {
        ReduceFixed<Codec, Op, kSources, kVectors>(p, op, step, begin + 16 * mine,
                                                   uint64_t{16} * w.threads);
        continue;
      }
    }
    for (uint32_t v = 0; v < kVectors; ++v) {
      const uint64_t vector = mine + uint64_t{v} * w.threads;
      if (vector >= vectors) break;
      if constexpr (kSources > 0) {
        ReduceFixed<Codec, Op, kSources, 1>(p, op, step, begin + 16 * vector, 0);
      } else {
        ReduceVector<Codec>(p, op, step, begin + 16 * vector);
      }
    }
  }
}

template <class Codec, class Op, uint32_t kSources = 0, uint32_t kVectors = 1, class Params>
SHUNT_DEVICE void ReduceBody(const Params& p, uint32_t y, const Where& w) {
  const Op op(p);
  const bool scatter = p.scatter != 0;
  const ReduceStep step = {scatter ? y * p.count * Codec::kBytes : 0, scatter ? y : 0,
                           scatter ? 1 : uint32_t{p.destinations}};
  const uint64_t start = p.source[0] + step.shift;
  uint64_t differ = 0;
  SHUNT_UNROLL_BY(4)
  for (uint32_t k = 1; k < (kSources > 0 ? kSources : p.sources); ++k) {
    differ |= (p.source[k] + step.shift) ^ start;
  }
  SHUNT_UNROLL_BY(4)
  for (uint32_t d = 0; d < step.destinations; ++d) differ |= p.destination[step.first + d] ^ start;

  const bool natural = ((differ | start) & (Codec::kBytes - 1)) == 0;
  const bool agree = natural && (differ & 15) == 0;
  uint64_t head = 0, whole = 0;  // elements before the vectors, and in them
  if (agree) {
    head = ((0 - start) & 15) / Codec::kBytes;
    if (head > p.count) head = p.count;
    const uint64_t vectors = (p.count - head) / kLanes<Codec>;
    ReduceVectors<Codec, Op, kSources, kVectors>(p, op, step, head * Codec::kBytes, vectors, w);
    if (w.block != w.blocks - 1) return;
    whole = vectors * kLanes<Codec>;
  }
  // The last block's; all of them where there are no vectors.
  const uint64_t stride = agree ? w.threads : uint64_t{w.blocks} * w.threads;
  for (uint64_t i = (agree ? 0 : uint64_t{w.block} * w.threads) + w.thread; i < p.count - whole;
       i += stride) {
    ReduceElement<Codec>(p, op, step, i < head ? i : i + whole, natural);
  }
}

// MinMaxCodec: for reductions that do not round.
template <class Codec, class MinMaxCodec = Codec, class Params>
SHUNT_DEVICE void ReduceAny(const Params& p, uint32_t y, const Where& w) {
  switch (static_cast<Redop>(p.redop)) {
    case Redop::kSum:
      return ReduceBody<Codec, SumOp<Codec>>(p, y, w);
    case Redop::kProd:
      return ReduceBody<Codec, ProdOp<Codec>>(p, y, w);
    case Redop::kMin:
      return ReduceBody<MinMaxCodec, ExtremeOp<MinMaxCodec, false>>(p, y, w);
    case Redop::kMax:
      return ReduceBody<MinMaxCodec, ExtremeOp<MinMaxCodec, true>>(p, y, w);
    case Redop::kAvg:
      return ReduceBody<Codec, AvgOp<Codec>>(p, y, w);
    case Redop::kPremulSum:
      return ReduceBody<Codec, PremulOp<Codec>>(p, y, w);
  }
}

}  // namespace shunt::gpu
