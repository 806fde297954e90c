// The arithmetic of collectives on host memory: one pass that reads every rank's contribution and
// writes every rank's result.
//
// Same inputs, same bits. A result depends on the contributions and on their order only: not on the
// SIMD width of the machine, not on how the caller cuts the buffer into chunks, not on the
// floating-point mode of the calling thread (flush-to-zero and rounding mode are set for the call
// and restored). That is what lets ranks and daemon workers share the chunks of one operation in
// any way they like.
//
// All functions are thread-safe, never allocate for up to 64 ranks, and return when the bytes are
// visible to a thread that the caller then synchronises with (non-temporal stores are fenced).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "runtime/core/types.h"

namespace shunt {

// kStreaming writes past the caches (non-temporal stores): for outputs larger than the cache, which
// nobody reads soon. It saves the read-for-ownership of each output line.
enum class StorePolicy : uint8_t { kTemporal, kStreaming };

// One rank's premul factor: one element of the operation's data type, in the first SizeOf(dtype)
// bytes.
struct Scalar {
  alignas(8) std::byte bytes[8];
};

struct ReduceSpec {
  DataType dtype;
  Redop redop;
  int divisor;  // kAvg: the number of ranks, >= 1; otherwise unused
  StorePolicy store;
};

// dsts[d][i] = srcs[0][i] op srcs[1][i] op ..., folded from the left, for i in [0, count) elements.
//
//  - Integers wrap in their own width; kAvg divides the wrapped sum, truncating towards zero.
//  - float32 and float64 accumulate in their own type. float16, bfloat16 and both float8 accumulate
//  in
//    float32 and are rounded once, to nearest even, at the end. float8 saturates to its largest
//    finite value, except that kMin and kMax give an infinity of float8 e5m2 back unchanged.
//  - kAvg divides the sum once. kPremulSum multiplies, rounds, then adds: never a fused
//  multiply-add.
//  - A NaN among the contributions makes the result a NaN, also for kMin and kMax, and a NaN result
//  is
//    always the type's positive quiet NaN (its payload would otherwise depend on instruction
//    selection). Of equal values, as -0 and +0, kMin and kMax keep the one of the lowest rank.
//  - One source without kAvg or kPremulSum is a copy, bit for bit; so is kAvg of one rank.
//
// Each dst may be the same pointer as any src (in place) and must otherwise not overlap it; dsts
// must not overlap each other. Pointers need no alignment. srcs and dsts hold at least one pointer
// each; `scalars` has srcs.size() entries for kPremulSum and is ignored otherwise. dtype and redop
// must be valid.
void ReduceInto(const ReduceSpec& spec, absl::Span<const std::byte* const> srcs,
                absl::Span<const Scalar> scalars, absl::Span<std::byte* const> dsts, size_t count);

// Writes `bytes` bytes of src to every dst, reading src once; a dst that equals src is skipped.
// Other overlaps are not allowed.
void CopyInto(const std::byte* src, absl::Span<std::byte* const> dsts, size_t bytes,
              StorePolicy policy);

}  // namespace shunt
