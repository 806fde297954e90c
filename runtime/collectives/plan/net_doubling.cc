// Recursive halving and doubling (Thakur, Rabenseifner and Gropp, "Optimization of collective
// communication operations in MPICH", 2005).
//
//   reduce_scatter of 4: in each round partners exchange halves of what they still have
//
//     0: [0 1 2 3] ──► [0 1] ──► [0]        partner p ^ 2, then p ^ 1; an all_gather runs it
//     1: [0 1 2 3] ──► [0 1] ──► [1]        backwards, an all_reduce does both
//     2: [0 1 2 3] ──► [2 3] ──► [2]
//     3: [0 1 2 3] ──► [2 3] ──► [3]
//
// Where P is not a power of two, Q is the largest one below and P - Q pairs fold: of participants
// 2i and 2i + 1 below 2(P - Q) the even one gives all that it has to the odd one, sits out, and
// gets its result in the end. What is left is Q virtual participants; the folded ones answer for
// two neighbouring blocks.
#include "runtime/collectives/plan/net_steps.h"

namespace shunt::net {
namespace {

struct Fold {
  int levels;     // log2 Q
  int32_t pairs;  // P - Q

  explicit Fold(int32_t n) : levels(FloorLog2(n)), pairs(n - (1 << levels)) {}
  bool Folds(int p) const { return p < 2 * pairs; }
  bool SitsOut(int p) const { return Folds(p) && p % 2 == 0; }
  int32_t Virtual(int p) const { return Folds(p) ? p / 2 : p - pairs; }
  int32_t Real(int32_t v) const { return v < pairs ? 2 * v + 1 : v + pairs; }
  // First block of virtual participant v where every participant has one.
  int32_t FirstBlock(int32_t v) const { return v < pairs ? 2 * v : v + pairs; }
};

// Rounds in which partners exchange.
int Exchanges(const NetSpec& spec, const Fold& fold) {
  const bool both =
      spec.kind == OpKind::kAllReduce && spec.algorithm == Algorithm::kHalvingDoubling;
  return both ? 2 * fold.levels : fold.levels;
}

uint32_t Count(const NetSpec& spec, int p) {
  const Fold fold(spec.participants);
  if (fold.SitsOut(p)) return 2;
  return 2 * Exchanges(spec, fold) + (fold.Folds(p) ? 2 : 0);
}

// The first and the last step of a pair: true and its step in `step` if `index` is one of them;
// otherwise `index` counts from the first exchange.
bool FoldStep(const NetSpec& spec, const Fold& fold, int p, uint32_t* index, NetStep* step) {
  if (!fold.Folds(p)) return false;
  const int last = Exchanges(spec, fold) + 1;
  const int32_t even = p & ~1;
  BlockSet folded = Blocks(0, BlockCount(spec));
  BlockSet unfolded = folded;
  if (spec.kind == OpKind::kReduceScatter) unfolded = Blocks(even);
  if (spec.kind == OpKind::kAllGather) {
    folded = Blocks(even);
    unfolded = Blocks(even + 1, spec.participants - 1);
  }
  if (fold.SitsOut(p)) {
    *step = *index == 0 ? Send(p + 1, folded, 0) : Recv(p + 1, unfolded, last);
    return true;
  }
  if (*index == 0) {
    *step = spec.kind == OpKind::kAllGather ? Recv(even, folded, 0) : RecvReduce(even, folded, 0);
    return true;
  }
  if (*index + 1 == Count(spec, p)) {
    *step = Send(even, unfolded, last);
    return true;
  }
  --*index;
  return false;
}

NetStep HalvingDoublingAt(const NetSpec& spec, int p, uint32_t index) {
  const Fold fold(spec.participants);
  NetStep step;
  if (FoldStep(spec, fold, p, &index, &step)) return step;
  const int exchange = static_cast<int>(index / 2);
  const bool halving = spec.kind != OpKind::kAllGather && exchange < fold.levels;
  const int level = spec.kind == OpKind::kAllReduce && !halving ? exchange - fold.levels : exchange;
  const int32_t half = 1 << (halving ? fold.levels - 1 - level : level);
  const int32_t v = fold.Virtual(p);
  const int32_t peer = fold.Real(v ^ half);
  const int32_t mine = v & ~(half - 1);
  const auto range = [&](int32_t first) {
    if (spec.kind == OpKind::kAllReduce) return Blocks(first, half);
    const int32_t from = fold.FirstBlock(first);
    return Blocks(from, fold.FirstBlock(first + half) - from);
  };
  const int round = exchange + (fold.pairs > 0 ? 1 : 0);
  if (index % 2 == 0) return Send(peer, range(halving ? mine ^ half : mine), round);
  return halving ? RecvReduce(peer, range(mine), round) : Recv(peer, range(mine ^ half), round);
}

// Both partners compute the same, so both must put the lower one's operand first.
NetStep RecursiveDoublingAt(const NetSpec& spec, int p, uint32_t index) {
  const Fold fold(spec.participants);
  NetStep step;
  if (FoldStep(spec, fold, p, &index, &step)) return step;
  const int exchange = static_cast<int>(index / 2);
  const int32_t peer = fold.Real(fold.Virtual(p) ^ (1 << exchange));
  const int round = exchange + (fold.pairs > 0 ? 1 : 0);
  if (index % 2 == 0) return Send(peer, Blocks(0), round);
  return RecvReduce(peer, Blocks(0), round, peer < p);
}

}  // namespace

const Plan kHalvingDoubling = {Count, HalvingDoublingAt};
const Plan kRecursiveDoubling = {Count, RecursiveDoublingAt};

}  // namespace shunt::net
