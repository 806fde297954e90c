// What one lane of one warp does of a move or a spread. Work is cut into parts of equal length, of
// which warps take one after the other, a grid apart.
#pragma once

#include <cstdint>

#include "runtime/gpu/kernels/copy_body.h"
#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu {

struct RunWords {
  uint64_t source, destination, bytes;  // as Run of worker/protocol.h
};

// Runs often lie in host memory: a warp asks for one at once, and for its next before it copies.
class RunReader {
 public:
  SHUNT_DEVICE RunReader(const void* runs, uint32_t lane) : lane_(lane) {
    base_ = reinterpret_cast<uint64_t>(runs);
  }
  SHUNT_DEVICE void Ask(uint64_t run) {
#ifdef __CUDACC__
    if (lane_ < 3) word_ = LoadAligned<unsigned long long>(base_ + 24 * run + 8 * lane_);
#else
    memcpy(&asked_, reinterpret_cast<const void*>(base_ + 24 * run), sizeof(asked_));
#endif
  }
  SHUNT_DEVICE RunWords Get() const {
#ifdef __CUDACC__
    return {__shfl_sync(~0u, word_, 0), __shfl_sync(~0u, word_, 1), __shfl_sync(~0u, word_, 2)};
#else
    return asked_;
#endif
  }

 private:
  uint64_t base_;
  uint32_t lane_;
#ifdef __CUDACC__
  unsigned long long word_ = 0;
#else
  RunWords asked_{};
#endif
};

// `parts` of each run.
SHUNT_DEVICE void MoveBody(const MoveParams& p, uint32_t parts, const Where& w) {
  const uint32_t lane = w.thread % kWarp;
  const uint32_t warps = w.blocks * (w.threads / kWarp);
  const uint32_t items = p.runs * parts;
  const uint32_t part_bytes = ((p.longest + parts - 1) / parts + 511) / 512 * 512;
  uint32_t item = w.block * (w.threads / kWarp) + w.thread / kWarp;
  if (item >= items) return;
  RunReader reader(p.run, lane);
  reader.Ask(item / parts);
  while (item < items) {
    const RunWords run = reader.Get();
    const uint64_t begin = uint64_t{item % parts} * part_bytes;
    item += warps;
    if (item < items) reader.Ask(item / parts);
    if (begin >= run.bytes || run.source == run.destination) continue;
    const uint64_t left = run.bytes - begin;
    CopyPiece(run.destination + begin, run.source + begin, left < part_bytes ? left : part_bytes,
              lane);
  }
}

// Bytes [begin, begin + bytes) of segment `i` to all the destinations.
SHUNT_DEVICE void FanOut(const SpreadParams& p, uint32_t i, uint64_t begin, uint64_t bytes,
                         uint32_t lane) {
  const uint64_t source = p.source[i] + begin;
  const uint64_t shift = i * p.bytes + begin;
  uint64_t differ = bytes | source;
  for (uint32_t d = 0; d < p.destinations; ++d) differ |= p.destination[d] + shift;
  if ((differ & 15) == 0) {
    CopyVectors(
        p.destinations, [&p, shift](uint32_t d) { return p.destination[d] + shift; }, source,
        bytes / 16, lane);
    return;
  }
  for (uint32_t d = 0; d < p.destinations; ++d) {
    const uint64_t destination = p.destination[d] + shift;
    if (destination != source) CopyPiece(destination, source, bytes, lane);
  }
}

SHUNT_DEVICE void SpreadBody(const SpreadParams& p, const Where& w) {
  const uint32_t lane = w.thread % kWarp;
  const uint64_t warps = uint64_t{w.blocks} * (w.threads / kWarp);
  const bool pairs = p.pattern == SpreadPattern::kPairs;
  const uint32_t segments = pairs ? p.segments * p.segments : p.segments;
  const uint64_t items = (p.bytes + p.part - 1) / p.part * segments;
  uint64_t item = uint64_t{w.block} * (w.threads / kWarp) + w.thread / kWarp;
  for (; item < items; item += warps) {
    const auto segment = static_cast<uint32_t>(item % segments);
    const uint64_t begin = item / segments * p.part;
    const uint64_t left = p.bytes - begin;
    const uint64_t bytes = left < p.part ? left : p.part;
    if (p.pattern == SpreadPattern::kFan) {
      FanOut(p, segment, begin, bytes, lane);
      continue;
    }
    uint64_t source, destination;
    if (pairs) {
      const uint32_t from = segment / p.segments, to = segment % p.segments;
      source = p.source[from] + to * p.bytes;
      destination = p.destination[to] + from * p.bytes;
    } else {
      source = p.source[segment];
      destination = p.destination[segment];
    }
    if (source != destination) CopyPiece(destination + begin, source + begin, bytes, lane);
  }
}

}  // namespace shunt::gpu
