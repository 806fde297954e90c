// Trees: the binomial one, and the two binary ones that share the work.
//
// Binomial, 8 participants: v hangs on v - lowbit(v). The subtree of v is the run of lowbit(v)
// places from v on, so a gather moves runs of blocks.
//
//     0 ─┬─ 4 ─┬─ 6 ── 7
//        │     └─ 5
//        ├─ 2 ── 3
//        └─ 1
//
// Double binary tree (Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast,
// reduction and scan", 2009), 7 participants. The root feeds, or is fed by, both trees; each tree
// holds all the others, in order, and carries half of the data. The second is the first with labels
// mirrored (P odd) or shifted by one (P even), so whoever is inside one is a leaf of the other, and
// sends and receives no more than the whole vector in each direction.
//
//     tree 1:      ┌─ 0             tree 2:      ┌─ 0
//                  4                             3
//               ┌──┴──┐                       ┌──┴──┐
//               2     6                       5     1
//              ┌┴┐   ┌┘                      ┌┴┐    └┐
//              1 3   5                       6 4     2
#include "runtime/collectives/plan/net_steps.h"

namespace shunt::net {
namespace {

struct Binomial {
  int32_t n;
  int32_t place;  // counted from the root
  int children;   // at place + 2^0, place + 2^1, …

  Binomial(const NetSpec& spec, int p)
      : n(spec.participants), place(Wrap(int64_t{p} - spec.root, n)) {
    const int free_bits = place == 0 ? CeilLog2(n) : LowBitIndex(place);
    const int in_range = CeilLog2(n - place);
    children = free_bits < in_range ? free_bits : in_range;
  }
  // Places of the subtree of `v`, which is not the root.
  int32_t Size(int32_t v) const { return LowBit(v) < n - v ? LowBit(v) : n - v; }
};

uint32_t BinomialCount(const NetSpec& spec, int p) {
  const Binomial tree(spec, p);
  return tree.children + (tree.place == 0 ? 0 : 1);
}

NetStep BinomialAt(const NetSpec& spec, int p, uint32_t index) {
  const Binomial tree(spec, p);
  const int32_t n = tree.n;
  const bool up = spec.kind == OpKind::kReduce || spec.kind == OpKind::kGather;
  const bool moves_runs = spec.kind == OpKind::kGather || spec.kind == OpKind::kScatter;
  // Upwards the small subtrees are ready first; downwards the large ones must hear first.
  const int at = static_cast<int>(index);
  int child = -1;  // its number, or -1: the parent
  if (up && at < tree.children) child = at;
  if (!up && (tree.place == 0 || at > 0)) {
    child = tree.children - 1 - (tree.place == 0 ? at : at - 1);
  }
  const int32_t low = child >= 0 ? tree.place + (1 << child) : tree.place;  // the lower end
  const int level = LowBitIndex(low);
  const int32_t peer =
      Wrap((child >= 0 ? int64_t{low} : int64_t{low} - LowBit(low)) + spec.root, n);
  const BlockSet blocks =
      moves_runs ? Blocks(Wrap(int64_t{low} + spec.root, n), tree.Size(low)) : Blocks(0);
  const int round = up ? level : CeilLog2(n) - 1 - level;
  if (up == (child < 0)) return Send(peer, blocks, round);
  return spec.kind == OpKind::kReduce ? RecvReduce(peer, blocks, round) : Recv(peer, blocks, round);
}

// One of the two trees, in labels: 0 is the root of all, 1 … n - 1 are in order.
struct Tree {
  int32_t n;
  bool second;

  int32_t Label(int32_t place) const {
    if (!second || place == 0) return place;
    return n % 2 == 1 ? n - place : place % (n - 1) + 1;
  }
  int32_t Place(int32_t label) const {
    if (!second || label == 0) return label;
    if (n % 2 == 1) return n - label;
    return label == 1 ? n - 1 : label - 1;
  }
  // The highest below the root: the largest power of two below n.
  int32_t Top() const { return static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(n - 1))); }
  int32_t Parent(int32_t label) const {
    const int32_t bit = LowBit(label);
    const int32_t up = (label ^ bit) | (2 * bit);
    return up < n ? up : label ^ bit;
  }
  // The lower child, then the higher one; 0 is none.
  int32_t Child(int32_t label, int which) const {
    if (label == 0) return which == 0 ? Top() : 0;
    int32_t off = LowBit(label) / 2;
    if (which == 0) return off > 0 ? label - off : 0;
    while (off > 0 && label + off >= n) off /= 2;
    return off > 0 ? label + off : 0;
  }
};

// Both trees up, then both down: at most 2 * 2 * 3 steps.
struct TreeSteps {
  NetStep steps[12];
  uint32_t count = 0;

  TreeSteps(const NetSpec& spec, int p) {
    const int32_t n = spec.participants;
    const int32_t root = HasRoot(spec.kind) ? spec.root : 0;
    const int32_t place = Wrap(int64_t{p} - root, n);
    const bool up = spec.kind != OpKind::kBroadcast;
    const bool down = spec.kind != OpKind::kReduce;
    const int top = CeilLog2(n) - 1;
    for (int t = 0; up && t < 2; ++t) Walk({n, t == 1}, root, place, t, 0, false);
    for (int t = 0; down && t < 2; ++t)
      Walk({n, t == 1}, root, place, t, up ? 2 * top + 1 : top, true);
  }

 private:
  // A message between a label and its parent runs in the round of the label's lowest bit, counted
  // up, or counted down from `last`.
  void Walk(const Tree& tree, int32_t root, int32_t place, int t, int last, bool down) {
    const int32_t label = tree.Label(place);
    const auto rank = [&](int32_t l) { return Wrap(int64_t{tree.Place(l)} + root, tree.n); };
    const auto round = [&](int32_t l) { return down ? last - LowBitIndex(l) : LowBitIndex(l); };
    if (down && label != 0) {
      steps[count++] = Recv(rank(tree.Parent(label)), Blocks(t), round(label));
    }
    // The higher child may be a smaller subtree: ready earlier upwards, served later downwards.
    for (int i = 0; i < 2; ++i) {
      const int32_t child = tree.Child(label, down ? i : 1 - i);
      if (child == 0) continue;
      steps[count++] = down ? Send(rank(child), Blocks(t), round(child))
                            : RecvReduce(rank(child), Blocks(t), round(child));
    }
    if (!down && label != 0) {
      steps[count++] = Send(rank(tree.Parent(label)), Blocks(t), round(label));
    }
  }
};

uint32_t DoubleTreeCount(const NetSpec& spec, int p) { return TreeSteps(spec, p).count; }
NetStep DoubleTreeAt(const NetSpec& spec, int p, uint32_t index) {
  return TreeSteps(spec, p).steps[index];
}

}  // namespace

const Plan kBinomial = {BinomialCount, BinomialAt};
const Plan kDoubleTree = {DoubleTreeCount, DoubleTreeAt};

}  // namespace shunt::net
