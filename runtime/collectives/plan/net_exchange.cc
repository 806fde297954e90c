// Each with each, in one hop: kPairwise and kDirect.
//
// At distance k = 1 … P - 1 everybody sends to p - k and receives from p + k, which is a
// permutation: no receiver has two senders (pairwise exchange, Thakur, Rabenseifner and Gropp,
// "Optimization of collective communication operations in MPICH", 2005). kPairwise makes each
// distance a round; kDirect is the same with all of them in one.
//
// They differ in all_reduce. kPairwise is a reduce_scatter and an all_gather, two hops that move
// the least possible number of bytes. kDirect gathers everybody's whole vector in one hop, and each
// participant folds them in rank order: what a few bytes want.
#include "runtime/collectives/plan/net_definition.h"
#include "runtime/collectives/plan/net_steps.h"

namespace shunt::net {
namespace {

uint32_t Count(const NetSpec& spec, int p) {
  const auto others = static_cast<uint32_t>(spec.participants - 1);
  if (HasRoot(spec.kind)) return p == spec.root ? others : 1;
  if (spec.kind != OpKind::kAllReduce) return 2 * others;
  return CombinesVectors(spec) ? 2 * others + 1 : 4 * others;
}

NetStep RootedAt(const NetSpec& spec, int p, uint32_t index) {
  const int32_t n = spec.participants;
  const bool is_root = p == spec.root;
  const int32_t other = is_root ? Wrap(int64_t{p} + 1 + index, n) : p;
  const int32_t peer = is_root ? other : spec.root;
  const int32_t round =
      spec.algorithm == Algorithm::kPairwise ? Wrap(int64_t{other} - spec.root, n) - 1 : 0;
  const bool one_block = spec.kind == OpKind::kBroadcast || spec.kind == OpKind::kReduce;
  const BlockSet blocks = Blocks(one_block ? 0 : other);
  const bool to_root = spec.kind == OpKind::kReduce || spec.kind == OpKind::kGather;
  if (to_root != is_root) return Send(peer, blocks, round);
  return spec.kind == OpKind::kReduce ? RecvReduce(peer, blocks, round) : Recv(peer, blocks, round);
}

NetStep At(const NetSpec& spec, int p, uint32_t index) {
  if (HasRoot(spec.kind)) return RootedAt(spec, p, index);
  const int32_t n = spec.participants;
  const int64_t t = index / 2;
  if (CombinesVectors(spec) && t == n - 1) {
    return {NetStep::Kind::kCombine, false, p, Blocks(0, n), 0};
  }
  const bool send = index % 2 == 0;
  const bool second = t >= n - 1;  // the all_gather of an all_reduce
  const int64_t k = t % (n - 1) + 1;
  const int64_t round = spec.algorithm == Algorithm::kPairwise ? t : 0;
  const int32_t to = Wrap(p - k, n), from = Wrap(p + k, n);
  if (spec.kind == OpKind::kAllToAll) {
    if (send) return Send(to, Blocks(int64_t{p} * n + to), round);
    return Recv(from, Blocks(int64_t{from} * n + p), round);
  }
  const bool scattering = spec.kind == OpKind::kReduceScatter ||
                          (spec.kind == OpKind::kAllReduce && !second && !CombinesVectors(spec));
  if (scattering) {
    if (send) return Send(to, Blocks(to), round);
    return RecvReduce(from, Blocks(p), round);
  }
  if (send) return Send(to, Blocks(p), round);
  return Recv(from, Blocks(from), round);
}

}  // namespace

const Plan kExchange = {Count, At};

}  // namespace shunt::net
