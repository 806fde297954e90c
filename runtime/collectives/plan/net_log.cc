// Plans of ceil(log2 P) hops for any P, in which all participants do the same: Bruck and PAT.
//
// Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", 1997: an all_gather doubles the run of blocks from the own
// one on; an all_to_all moves a block on by the bits of its distance.
//
// PAT, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale"
// (arXiv 2506.20252): a binomial tree over offsets. The reduce_scatter of 8, seen from the
// participant that owns the block (offset 0); offset s hands its sum to s - lowbit(s):
//
//     0 ◄── 1                round 0: offsets 1 3 5 7
//     0 ◄── 2 ◄── 3          round 1: offsets 2 6
//     0 ◄── 4 ◄── 5          round 2: offset 4
//           4 ◄── 6 ◄── 7
//
// Every participant is at every offset, each for another block. kPat sends all blocks of a round in
// one message: the last hops carry one block, the first P / 2. kPatBounded walks the offsets from
// P - 1 down instead, one block a message and round: an offset's children are all above it, and few
// sums are open at a time. An all_gather is the mirror image of both.
#include "runtime/collectives/plan/net_steps.h"

namespace shunt::net {
namespace {

uint32_t RoundsTwice(const NetSpec& spec, int) { return 2 * CeilLog2(spec.participants); }

NetStep BruckAt(const NetSpec& spec, int p, uint32_t index) {
  const int32_t n = spec.participants;
  const uint32_t round = index / 2;
  const int32_t d = 1 << round;
  const bool send = index % 2 == 0;
  if (spec.kind == OpKind::kAllGather) {
    const int32_t count = d < n - d ? d : n - d;
    if (send) return Send(Wrap(int64_t{p} - d, n), Blocks(p, count), round);
    const int32_t from = Wrap(int64_t{p} + d, n);
    return Recv(from, Blocks(from, count), round);
  }
  // Distances below n whose bit `round` is set: whole periods of 2d, and what follows.
  const int32_t rest = n % (2 * d) - d;
  const int32_t count = n / (2 * d) * d + (rest > 0 ? rest : 0);
  if (send) return Send(Wrap(int64_t{p} + d, n), Blocks(0, count), round);
  return Recv(Wrap(int64_t{p} - d, n), Blocks(0, count), round);
}

NetStep PatAt(const NetSpec& spec, int p, uint32_t index) {
  const int32_t n = spec.participants;
  const int32_t round = static_cast<int32_t>(index / 2);
  const bool send = index % 2 == 0;
  const bool gathers = spec.kind == OpKind::kAllGather;
  const int32_t d = 1 << (gathers ? CeilLog2(n) - 1 - round : round);
  const int32_t count = (n - 1 - d) / (2 * d) + 1;  // offsets below n whose lowest bit is d
  const int32_t above = Wrap(int64_t{p} + d, n), below = Wrap(int64_t{p} - d, n);
  if (gathers) {
    if (send) return Send(below, Blocks(p, count, 2 * d), round);
    return Recv(above, Blocks(above, count, 2 * d), round);
  }
  if (send) return Send(above, Blocks(above, count, 2 * d), round);
  return RecvReduce(below, Blocks(p, count, 2 * d), round);
}

uint32_t PatBoundedCount(const NetSpec& spec, int) {
  return 2 * static_cast<uint32_t>(spec.participants - 1);
}

NetStep PatBoundedAt(const NetSpec& spec, int p, uint32_t index) {
  const int32_t n = spec.participants;
  const bool send = index % 2 == 0;
  const bool gathers = spec.kind == OpKind::kAllGather;
  const int32_t j = static_cast<int32_t>(index / 2);
  const int32_t offset = gathers ? 1 + j : n - 1 - j;
  const int32_t d = LowBit(offset);
  const int32_t above = Wrap(int64_t{p} + d, n), below = Wrap(int64_t{p} - d, n);
  const BlockSet parent = Blocks(Wrap(int64_t{p} + offset - d, n));
  const BlockSet own = Blocks(Wrap(int64_t{p} + offset, n));
  if (gathers) return send ? Send(below, parent, j) : Recv(above, own, j);
  return send ? Send(above, own, j) : RecvReduce(below, parent, j);
}

}  // namespace

const Plan kBruck = {RoundsTwice, BruckAt};
const Plan kPat = {RoundsTwice, PatAt};
const Plan kPatBounded = {PatBoundedCount, PatBoundedAt};

}  // namespace shunt::net
