// What the algorithms of net_plan.h are made of: one pair of functions each, and small arithmetic.
// Private to this directory.
#pragma once

#include <bit>
#include <cstdint>

#include "runtime/collectives/plan/net_plan.h"

namespace shunt::net {

// One algorithm. The spec is valid, its kind is neither barrier nor all_to_all_v, and it has more
// than one participant.
struct Plan {
  uint32_t (*count)(const NetSpec& spec, int p);
  NetStep (*at)(const NetSpec& spec, int p, uint32_t index);
};
extern const Plan kRing, kExchange, kHalvingDoubling, kRecursiveDoubling, kBruck, kPat, kPatBounded,
    kBinomial, kDoubleTree, kAggregated;

// x modulo n, in [0, n).
inline int32_t Wrap(int64_t x, int32_t n) {
  x %= n;
  return static_cast<int32_t>(x < 0 ? x + n : x);
}
// Largest d with 2^d <= n, and smallest with 2^d >= n. n > 0.
inline int FloorLog2(int32_t n) { return std::bit_width(static_cast<uint32_t>(n)) - 1; }
inline int CeilLog2(int32_t n) { return std::bit_width(static_cast<uint32_t>(n - 1)); }
// The lowest set bit, and its number. n > 0.
inline int32_t LowBit(int32_t n) { return n & -n; }
inline int LowBitIndex(int32_t n) { return std::countr_zero(static_cast<uint32_t>(n)); }

inline BlockSet Blocks(int64_t first, int64_t count = 1, int64_t stride = 1) {
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(count),
          static_cast<uint32_t>(stride)};
}
inline NetStep Send(int32_t peer, BlockSet blocks, int64_t round) {
  return {NetStep::Kind::kSend, false, peer, blocks, static_cast<uint32_t>(round)};
}
inline NetStep Recv(int32_t peer, BlockSet blocks, int64_t round) {
  return {NetStep::Kind::kRecv, false, peer, blocks, static_cast<uint32_t>(round)};
}
inline NetStep RecvReduce(int32_t peer, BlockSet blocks, int64_t round, bool peer_first = false) {
  return {NetStep::Kind::kRecvReduce, peer_first, peer, blocks, static_cast<uint32_t>(round)};
}

}  // namespace shunt::net
