// The ring and the chain.
//
//   reduce_scatter, 4 participants: the block that each sends to its right neighbour
//
//     round    0 ──► 1 ──► 2 ──► 3 ──► (0)
//       0      3     0     1     2
//       1      2     3     0     1
//       2      1     2     3     0        then participant p has all of block p
//
// An all_gather passes on what came last, from the own block on; an all_reduce is one after the
// other. Each link carries (P - 1) / P of the vector in each half, which is the least possible
// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009). Broadcast and reduce run
// along the chain from or to the root, and live by the slices that follow each other.
#include "runtime/collectives/plan/net_steps.h"

namespace shunt::net {
namespace {

bool IsChain(OpKind kind) { return kind == OpKind::kBroadcast || kind == OpKind::kReduce; }

NetStep ChainAt(const NetSpec& spec, int p, uint32_t index) {
  const int32_t n = spec.participants;
  const int32_t place = Wrap(int64_t{p} - spec.root, n);  // the root's is 0
  const int32_t up = Wrap(int64_t{p} - 1, n), down = Wrap(int64_t{p} + 1, n);
  if (spec.kind == OpKind::kBroadcast) {
    if (place > 0 && index == 0) return Recv(up, Blocks(0), place - 1);
    return Send(down, Blocks(0), place);
  }
  if (place < n - 1 && index == 0) return RecvReduce(down, Blocks(0), n - 2 - place);
  return Send(up, Blocks(0), n - 1 - place);
}

uint32_t Count(const NetSpec& spec, int p) {
  const int32_t n = spec.participants;
  if (IsChain(spec.kind)) {
    const int32_t place = Wrap(int64_t{p} - spec.root, n);
    return (place > 0 ? 1 : 0) + (place < n - 1 ? 1 : 0);
  }
  return static_cast<uint32_t>(n - 1) * (spec.kind == OpKind::kAllReduce ? 4 : 2);
}

NetStep At(const NetSpec& spec, int p, uint32_t index) {
  if (IsChain(spec.kind)) return ChainAt(spec, p, index);
  const int32_t n = spec.participants;
  const int64_t round = index / 2;
  const bool send = index % 2 == 0;
  const int32_t left = Wrap(int64_t{p} - 1, n), right = Wrap(int64_t{p} + 1, n);
  const bool scattering =
      spec.kind == OpKind::kReduceScatter || (spec.kind == OpKind::kAllReduce && round < n - 1);
  if (scattering) {
    if (send) return Send(right, Blocks(Wrap(p - round - 1, n)), round);
    return RecvReduce(left, Blocks(Wrap(p - round - 2, n)), round);
  }
  const int64_t t = spec.kind == OpKind::kAllReduce ? round - (n - 1) : round;
  if (send) return Send(right, Blocks(Wrap(p - t, n)), round);
  return Recv(left, Blocks(Wrap(p - t - 1, n)), round);
}

}  // namespace

const Plan kRing = {Count, At};

}  // namespace shunt::net
