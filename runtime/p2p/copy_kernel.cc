#include "runtime/p2p/copy_kernel.h"

#include "runtime/collectives/exec/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/p2p/copy_kernel.cc"
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace shunt::p2p::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLine = 64;
// The processor follows a stream of lines by itself after a few of them.
constexpr size_t kHeadBytes = 8 * kLine;
// A streamed line must be written whole; below a few lines the edges cost more than is saved.
constexpr size_t kStreamMin = 8 * kLine;

HWY_INLINE void FetchHead(const PointerRun& run) {
  const size_t end = HWY_MIN(run.bytes, kHeadBytes);
  for (size_t at = 0; at < end; at += kLine) hwy::Prefetch(run.from + at);
}

HWY_INLINE void StreamRun(const PointerRun& run) {
  const hn::ScalableTag<uint8_t> d;
  constexpr size_t kVector = hn::MaxLanes(d);
  constexpr size_t kStep = 4 * kVector;
  const size_t head = -reinterpret_cast<uintptr_t>(run.to) % kLine;
  std::memcpy(run.to, run.from, head);
  const auto* from = reinterpret_cast<const uint8_t*>(run.from) + head;
  auto* to = reinterpret_cast<uint8_t*>(run.to) + head;
  size_t left = run.bytes - head;
  for (; left >= kStep; left -= kStep, from += kStep, to += kStep) {
    const auto a = hn::LoadU(d, from);
    const auto b = hn::LoadU(d, from + kVector);
    const auto c = hn::LoadU(d, from + 2 * kVector);
    const auto e = hn::LoadU(d, from + 3 * kVector);
    hn::Stream(a, d, to);
    hn::Stream(b, d, to + kVector);
    hn::Stream(c, d, to + 2 * kVector);
    hn::Stream(e, d, to + 3 * kVector);
  }
  std::memcpy(to, from, left);
}

void StreamRuns(const PointerRun* runs, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (i + 1 < count) FetchHead(runs[i + 1]);
    if (runs[i].bytes < kStreamMin) {
      std::memcpy(runs[i].to, runs[i].from, runs[i].bytes);
    } else {
      StreamRun(runs[i]);
    }
  }
}

void StoreRuns(const PointerRun* runs, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (i + 1 < count) FetchHead(runs[i + 1]);
    std::memcpy(runs[i].to, runs[i].from, runs[i].bytes);
  }
}

}  // namespace shunt::p2p::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace shunt::p2p {
namespace {
HWY_EXPORT(StreamRuns);
HWY_EXPORT(StoreRuns);
}  // namespace

void CopyRuns(absl::Span<const PointerRun> runs, StorePolicy policy) {
  if (policy == StorePolicy::kStreaming) {
    HWY_DYNAMIC_DISPATCH(StreamRuns)(runs.data(), runs.size());
  } else {
    HWY_DYNAMIC_DISPATCH(StoreRuns)(runs.data(), runs.size());
  }
}

void FinishRuns(StorePolicy policy) {
  if (policy == StorePolicy::kStreaming) hwy::FlushStream();
}

}  // namespace shunt::p2p
#endif
