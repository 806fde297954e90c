#include "runtime/collectives/plan/net_cost.h"

#include <algorithm>
#include <bit>

#include "runtime/collectives/plan/net_definition.h"
#include "runtime/collectives/plan/net_steps.h"

namespace shunt {
namespace {

// n participants, a vector or buffer of s bytes, blocks of b = s / n.
struct Call {
  const NetSpec& spec;
  OpKind kind;
  int32_t n;
  double s, b;

  bool Is(OpKind k) const { return kind == k; }
};

// Thakur, Rabenseifner and Gropp 2005, section 4; the chain is their pipelined broadcast.
NetCost Ring(const Call& c) {
  const double hops = c.n - 1;
  if (c.Is(OpKind::kBroadcast)) return {hops, 1, c.s, hops * c.s, 0, 0};
  if (c.Is(OpKind::kReduce)) return {hops, 1, c.s, hops * c.s, c.s, hops * c.s};
  const double half = hops * c.b;
  if (c.Is(OpKind::kAllReduce)) return {2 * hops, 2 * hops, 2 * half, 2 * half, half, half};
  const double reduced = c.Is(OpKind::kReduceScatter) ? half : 0;
  return {hops, hops, half, half, reduced, reduced};
}

// Sanders, Speck and Träff 2009: a level passes on one half in each of two steps.
NetCost DoubleTree(const Call& c) {
  const double levels = net::CeilLog2(c.n);
  const double path = levels * c.s;
  if (c.Is(OpKind::kBroadcast)) return {levels, 2, c.s, path, 0, 0};
  if (c.Is(OpKind::kReduce)) return {levels, 2, c.s, path, c.s, path};
  // The busiest forwards for one or two children in one tree, and is a leaf of the other.
  const double halves = std::min(c.n, 4);
  return {2 * levels, halves, halves * c.s / 2, 2 * path, c.s, path};
}

// Rabenseifner's algorithm, Thakur and others 2005, section 4.5, and its halves.
NetCost HalvingDoubling(const Call& c) {
  const int levels = net::FloorLog2(c.n);
  const auto q = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(c.n)));
  const int32_t pairs = c.n - q;
  const double fold = pairs > 0 ? 1 : 0;
  if (c.Is(OpKind::kAllReduce)) {
    const double half = c.s * (q - 1) / q;
    const double reduced = half + fold * c.s;
    NetCost cost = {2 * levels + 2 * fold,     2 * levels + fold, 2 * half + fold * c.s,
                    2 * half + 2 * fold * c.s, reduced,           reduced};
    cost.copied_bytes = 3 * (half - c.s / q);  // all messages but those of one block
    return cost;
  }
  // The first virtual participant's ranges have the most blocks: two where a pair has folded.
  double blocks = 0;
  for (int32_t m = q / 2; m > 0; m /= 2) blocks += std::min(2 * m, m + pairs);
  if (c.Is(OpKind::kReduceScatter)) {
    const double in = (blocks + fold * c.n) * c.b;
    NetCost cost = {levels + 2 * fold, levels + fold, in, in + fold * c.b, in, in};
    cost.copied_bytes = std::max(0.0, in - c.b);
    return cost;
  }
  const double out = (blocks + fold * (c.n - 1)) * c.b;
  NetCost cost = {levels + 2 * fold, levels + fold, out, out + fold * c.b, 0, 0};
  cost.copied_bytes = 2 * std::max(0.0, out - c.b);
  return cost;
}

// Thakur and others 2005, section 4.4.
NetCost RecursiveDoubling(const Call& c) {
  const double levels = net::FloorLog2(c.n);
  const double fold = std::has_single_bit(static_cast<uint32_t>(c.n)) ? 0 : 1;
  const double moved = (levels + fold) * c.s;
  return {levels + 2 * fold, levels + fold, moved, moved + fold * c.s, moved, moved};
}

// Bruck and others 1997.
NetCost Bruck(const Call& c) {
  const double rounds = net::CeilLog2(c.n);
  double blocks = c.n - 1;
  if (c.Is(OpKind::kAllToAll)) {
    // In each round the distances below n that have the bit d.
    int32_t sent = 0;
    for (int32_t d = 1; d < c.n; d *= 2) {
      sent += c.n / (2 * d) * d + std::max(c.n % (2 * d) - d, 0);
    }
    blocks = sent;
  }
  NetCost cost = {rounds, rounds, blocks * c.b, blocks * c.b, 0, 0};
  cost.copied_bytes = 2 * (c.Is(OpKind::kAllToAll) ? blocks : blocks - 1) * c.b;
  return cost;
}

// arXiv 2506.20252. The bounded form pays a latency a round here, as if it had one arrival at a
// time.
NetCost Pat(const Call& c) {
  const double rounds = c.spec.algorithm == Algorithm::kPatBounded ? c.n - 1 : net::CeilLog2(c.n);
  const double moved = (c.n - 1) * c.b;
  const double reduced = c.Is(OpKind::kReduceScatter) ? moved : 0;
  NetCost cost = {rounds, rounds, moved, moved, reduced, reduced};
  const double sides = c.Is(OpKind::kReduceScatter) ? 1 : 2;
  if (c.spec.algorithm == Algorithm::kPat) cost.copied_bytes = sides * (moved - c.b);
  return cost;
}

// Thakur and others 2005, section 4.2. Pairwise pays a latency a round: an executor that does not
// wait for rounds is faster, and has the incast of kDirect.
NetCost Exchange(const Call& c) {
  const bool direct = c.spec.algorithm == Algorithm::kDirect;
  const double others = c.n - 1;
  const double rounds = direct ? 1 : others;
  const double whole = others * c.s, parts = others * c.b;
  NetCost cost = {rounds, others, parts, parts, 0, 0};
  switch (c.kind) {
    case OpKind::kAllReduce:
      cost = direct ? NetCost{1, others, whole, whole, whole, whole}
                    : NetCost{2 * rounds, 2 * others, 2 * parts, 2 * parts, parts, parts};
      break;
    case OpKind::kBroadcast:
      cost = {rounds, others, whole, whole, 0, 0};
      break;
    case OpKind::kReduce:
      cost = {rounds, others, whole, whole, whole, whole};
      break;
    case OpKind::kReduceScatter:
      cost.reduced_bytes = cost.path_reduced_bytes = parts;
      break;
    default:
      break;
  }
  cost.incast = direct && !c.Is(OpKind::kBroadcast) && !c.Is(OpKind::kScatter) && c.n > 2;
  return cost;
}

// Up and down once; with fewer aggregators than participants their links are the busiest.
NetCost Aggregated(const Call& c) {
  const int32_t a = c.spec.aggregators;
  const int32_t blocks_most = (c.n - 1) / a + 1;  // of an aggregator
  const double share = c.Is(OpKind::kReduceScatter) ? c.b * blocks_most : c.s / a;
  const double busy = c.Is(OpKind::kReduceScatter) ? std::min(a, c.n) : a;
  const double up = std::max(c.s, c.n * share);
  double down = up;
  if (c.Is(OpKind::kReduce)) down = c.s;
  if (c.Is(OpKind::kReduceScatter)) down = share;
  const double reduced = (c.n - 1) * share;
  NetCost cost = {2, std::max<double>(busy, c.n), up, up + down, reduced, reduced};
  cost.incast = c.n > 1;
  return cost;
}

// Thakur and others 2005, sections 4.1 and 4.3.
NetCost Binomial(const Call& c) {
  const double levels = net::CeilLog2(c.n);
  if (c.Is(OpKind::kGather) || c.Is(OpKind::kScatter)) {
    const double moved = (c.n - 1) * c.b;
    return {levels, levels, moved, moved, 0, 0};
  }
  const double moved = levels * c.s;
  const double reduced = c.Is(OpKind::kReduce) ? moved : 0;
  return {levels, levels, moved, moved, reduced, reduced};
}

NetCost CostOfCall(const Call& c) {
  switch (c.spec.algorithm) {
    case Algorithm::kRing:
      return Ring(c);
    case Algorithm::kDoubleTree:
      return DoubleTree(c);
    case Algorithm::kHalvingDoubling:
      return HalvingDoubling(c);
    case Algorithm::kRecursiveDoubling:
      return RecursiveDoubling(c);
    case Algorithm::kBruck:
      return Bruck(c);
    case Algorithm::kPat:
    case Algorithm::kPatBounded:
      return Pat(c);
    case Algorithm::kPairwise:
    case Algorithm::kDirect:
      return Exchange(c);
    case Algorithm::kAggregated:
      return Aggregated(c);
    case Algorithm::kBinomial:
      return Binomial(c);
  }
  return {};
}

}  // namespace

NetCost CostOf(const NetSpec& spec, uint64_t bytes) {
  const double s = spec.kind == OpKind::kBarrier ? 0 : static_cast<double>(bytes);
  if (spec.participants == 1) return {};
  const OpKind kind = net::PlanKind(spec.kind);
  NetCost cost = CostOfCall({spec, kind, spec.participants, s, s / spec.participants});
  const bool vector =
      kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kBroadcast;
  const double blocks = vector ? BlockCount(spec) : spec.participants;
  cost.block_bytes = net::CombinesVectors(spec) ? s : s / blocks;
  return cost;
}

double PredictSeconds(const NetCost& cost, const LinkModel& model, uint32_t slice_count) {
  const double slices = std::max<uint32_t>(1, slice_count);
  const double byte_s = (cost.incast ? model.incast_factor : 1) / model.bytes_per_s;
  const double reduce_s = 1 / model.reduce_bytes_per_s;
  // The first slice goes the whole way; the others follow at the pace of the busiest resource.
  const double copies = cost.copied_bytes * reduce_s;
  const double first = cost.path_bytes * byte_s + cost.path_reduced_bytes * reduce_s + copies;
  const double pace = std::max(cost.link_bytes * byte_s, cost.reduced_bytes * reduce_s) + copies;
  return cost.latencies * model.latency_s +
         std::max(cost.latencies, cost.messages * slices) * model.message_overhead_s +
         first / slices + pace * (1 - 1 / slices);
}

}  // namespace shunt
