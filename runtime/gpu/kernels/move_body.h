// What one thread does of a move or a spread.
//
// Between places on the GPU a block of few threads takes one part, of so many bytes that each of
// its threads has all its loads in flight at once, and ends: what a block waits for is hidden by
// the blocks beside it, and the next one starts wherever a place gets free. A grid that stays, with
// parts handed round, was 3 to 10 % slower. Over PCIe it is as fast with a few warps, which leave
// the GPU to others.
#pragma once

#include <cstdint>

#include "runtime/gpu/kernels/copy_body.h"
#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu {

inline constexpr uint32_t kWarp = 32;

// A run's words, at once for the lanes of a warp together: a table may lie in host memory.
template <class Params>
class RunReader {
 public:
  SHUNT_DEVICE RunReader(const Params& params, uint32_t lane) : params_(params), lane_(lane) {}
  SHUNT_DEVICE void Ask(uint32_t run) {
#ifdef __CUDACC__
    const auto* few = reinterpret_cast<const uint64_t*>(params_.few + run);
    const auto* words = reinterpret_cast<const uint64_t*>(params_.run + run);
    if (lane_ < 3) word_ = params_.run == nullptr ? few[lane_] : words[lane_];
#else
    memcpy(&asked_, (params_.run == nullptr ? params_.few : params_.run) + run, sizeof(asked_));
#endif
  }
  // By all lanes of the warp.
  SHUNT_DEVICE RunWords Get() const {
#ifdef __CUDACC__
    return {__shfl_sync(~0u, word_, 0), __shfl_sync(~0u, word_, 1), __shfl_sync(~0u, word_, 2)};
#else
    return asked_;
#endif
  }

 private:
  const Params& params_;
  uint32_t lane_;
#ifdef __CUDACC__
  uint64_t word_ = 0;
#else
  RunWords asked_{};
#endif
};

SHUNT_DEVICE void MovePart(const MoveHead& p, const RunWords& run, uint32_t part,
                           const Team& team) {
  if (run.source == run.destination) return;
  const auto bytes = static_cast<uint32_t>(run.bytes);
  uint32_t size = p.part;
  // It is longer than expected.
  if (bytes / p.parts >= size) size = (bytes / p.parts + 16) / 16 * 16;
  const uint64_t begin = uint64_t{part} * size;
  if (begin >= bytes) return;
  const uint32_t left = bytes - static_cast<uint32_t>(begin);
  CopyPiece(run.destination + begin, run.source + begin, left < size ? left : size, team);
}

// Team `t`'s: part t modulo parts of run t over parts.
template <class Params>
SHUNT_DEVICE void MoveByTeam(const Params& p, const Where& w) {
  const Team team = {w.thread % p.team, p.team};
  const uint32_t item = w.block * (w.threads / p.team) + w.thread / p.team;
  if (item >= p.runs * p.parts) return;
  RunReader reader(p, w.thread % kWarp);
  reader.Ask(item / p.parts);
  MovePart(p, reader.Get(), item % p.parts, team);
}

// Warps take parts a grid apart, and ask for the next run's words before they copy.
template <class Params>
SHUNT_DEVICE void MoveByWarp(const Params& p, const Where& w) {
  const uint32_t lane = w.thread % kWarp;
  const uint32_t warps = w.blocks * (w.threads / kWarp);
  const uint32_t items = p.runs * p.parts;
  uint32_t item = w.block * (w.threads / kWarp) + w.thread / kWarp;
  if (item >= items) return;
  RunReader reader(p, lane);
  reader.Ask(item / p.parts);
  while (item < items) {
    const RunWords run = reader.Get();
    const uint32_t part = item % p.parts;
    item += warps;
    if (item < items) reader.Ask(item / p.parts);
    MovePart(p, run, part, {lane, kWarp});
  }
}

// Bytes [begin, begin + bytes) of segment `i` to all the destinations.
template <class Params>
SHUNT_DEVICE void FanOut(const Params& p, uint32_t i, uint64_t begin, uint32_t bytes,
                         const Team& team) {
  const uint64_t source = p.source[i] + begin;
  const uint64_t shift = i * p.bytes + begin;
  uint64_t differ = bytes | source;
  for (uint32_t d = 0; d < p.destinations; ++d) differ |= p.destination[d] + shift;
  if ((differ & 15) == 0) {
    CopyVectors(
        p.destinations, [&p, shift](uint32_t d) { return p.destination[d] + shift; }, source,
        bytes / 16, team);
    return;
  }
  for (uint32_t d = 0; d < p.destinations; ++d) {
    const uint64_t destination = p.destination[d] + shift;
    if (destination != source) CopyPiece(destination, source, bytes, team);
  }
}

// Part `w.block` of segment `segment`.
template <class Params>
SHUNT_DEVICE void SpreadBody(const Params& p, uint32_t segment, const Where& w) {
  const Team team = {w.thread, w.threads};
  const uint64_t begin = uint64_t{w.block} * p.part;
  if (begin >= p.bytes) return;
  const uint64_t left = p.bytes - begin;
  const uint32_t bytes = left < p.part ? static_cast<uint32_t>(left) : p.part;
  if (p.pattern == SpreadPattern::kFan) {
    FanOut(p, segment, begin, bytes, team);
    return;
  }
  uint64_t source = 0, destination = 0;
  if (p.pattern == SpreadPattern::kPairs) {
    const uint32_t from = segment / p.segments, to = segment % p.segments;
    source = p.source[from] + to * p.bytes;
    destination = p.destination[to] + from * p.bytes;
  } else {
    source = p.source[segment];
    destination = p.destination[segment];
  }
  if (source != destination) CopyPiece(destination + begin, source + begin, bytes, team);
}

}  // namespace shunt::gpu
