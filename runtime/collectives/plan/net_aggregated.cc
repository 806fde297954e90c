// Through aggregators: participants that have no data, only add and hand out.
//
//     0 ──┐                ┌──► 0
//     1 ──┼──► aggregator ─┼──► 1        blocks are dealt over the aggregators in turn
//     2 ──┘                └──► 2
//
// A host's link carries the vector once each way instead of 2 (P - 1) / P times, as with reduction
// in switches (Graham and others, "Scalable hierarchical aggregation protocol (SHArP)", 2016). An
// aggregator takes the contributions in rank order. Hosts begin at different aggregators.
#include "runtime/collectives/plan/net_steps.h"

namespace shunt::net {
namespace {

// Aggregators that get a block.
int32_t Busy(const NetSpec& spec) {
  return spec.kind == OpKind::kReduceScatter && spec.participants < spec.aggregators
             ? spec.participants
             : spec.aggregators;
}

// The blocks of aggregator a.
BlockSet BlocksOf(const NetSpec& spec, int32_t a) {
  if (spec.kind != OpKind::kReduceScatter) return Blocks(a);
  return Blocks(a, (spec.participants - 1 - a) / spec.aggregators + 1, spec.aggregators);
}

uint32_t Count(const NetSpec& spec, int p) {
  const auto n = static_cast<uint32_t>(spec.participants);
  const auto busy = static_cast<uint32_t>(Busy(spec));
  if (p >= spec.participants) {  // an aggregator
    const int32_t a = p - spec.participants;
    if (a >= Busy(spec)) return 0;
    if (spec.kind == OpKind::kAllReduce) return 2 * n;
    return n + (spec.kind == OpKind::kReduce ? 1 : BlocksOf(spec, a).count);
  }
  if (spec.kind == OpKind::kAllReduce) return 2 * busy;
  if (spec.kind == OpKind::kReduce) return p == spec.root ? 2 * busy : busy;
  return busy + 1;
}

NetStep At(const NetSpec& spec, int p, uint32_t index) {
  const int32_t n = spec.participants;
  const int32_t busy = Busy(spec);
  const auto i = static_cast<int32_t>(index);
  if (p >= n) {
    const int32_t a = p - n;
    if (i < n) return RecvReduce(i, BlocksOf(spec, a), 0);
    // Each begins with another host.
    if (spec.kind == OpKind::kAllReduce) return Send(Wrap(int64_t{a} + i - n, n), Blocks(a), 1);
    if (spec.kind == OpKind::kReduce) return Send(spec.root, Blocks(a), 1);
    const int32_t owner = a + (i - n) * spec.aggregators;
    return Send(owner, Blocks(owner), 1);
  }
  if (i >= busy && spec.kind == OpKind::kReduceScatter) {
    return Recv(n + p % spec.aggregators, Blocks(p), 1);
  }
  const int32_t a = Wrap(int64_t{p} + i, busy);
  return i < busy ? Send(n + a, BlocksOf(spec, a), 0) : Recv(n + a, Blocks(a), 1);
}

}  // namespace

const Plan kAggregated = {Count, At};

}  // namespace shunt::net
