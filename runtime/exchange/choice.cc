#include "runtime/exchange/choice.h"

#include <algorithm>

namespace shunt::exchange {
namespace {

// Slices of an operation overlap: one is on its way while another is reduced. Four are enough for
// that, and each costs every node its own time.
constexpr uint64_t kSlicesWanted = 4;
constexpr uint64_t kSliceBytes = 256 << 10;
constexpr uint64_t kSliceBytesMin = 128 << 10;
// Through aggregators a slice is on its way back while later ones go up: the shorter, the less
// waits at both ends. And all send to all, a message at a time: the shorter, the closer they stay
// together.
constexpr double kAggregatedSliceSeconds = 0.5e-3;
constexpr double kAggregatedSliceBytesMin = 16 << 10;

NetSpec NetOf(const CollectiveSpec& call, const NodeMap& map) {
  NetSpec net;
  net.kind = call.kind == OpKind::kAllToAllV ? OpKind::kAllToAll : call.kind;
  net.participants = map.nodes();
  net.root = HasRoot(call.kind) ? map.node_of[call.root] : 0;
  return net;
}

// By what is called `algorithm`, if the kind has such a plan here.
bool Become(Algorithm algorithm, const Policy& policy, NetSpec* net) {
  NetSpec wanted = *net;
  wanted.algorithm = algorithm;
  if (algorithm == Algorithm::kAggregated) {
    if (net->kind != OpKind::kAllReduce || policy.aggregators == 0) return false;
    wanted.aggregators = policy.aggregators;
  }
  if (!ValidateNetSpec(wanted).ok()) return false;
  *net = wanted;
  return true;
}

uint64_t SliceBytes(Algorithm algorithm, uint64_t block_bytes, const LinkModel& model) {
  if (algorithm != Algorithm::kAggregated) {
    return std::clamp(block_bytes / kSlicesWanted, kSliceBytesMin, kSliceBytes);
  }
  return static_cast<uint64_t>(std::clamp(kAggregatedSliceSeconds * model.bytes_per_s,
                                          kAggregatedSliceBytesMin,
                                          static_cast<double>(kSliceBytes)));
}

// The one rule by which an operation is cut: what is predicted is what runs.
uint32_t SlicesOf(const CollectiveSpec& call, const NodeMap& map, const NetSpec& net,
                  const LinkModel& model) {
  const uint64_t block = BytesOf(call, map.world()) / std::max<uint64_t>(1, BlockCount(net));
  const uint64_t bytes = SliceBytes(net.algorithm, block, model);
  return static_cast<uint32_t>(std::clamp<uint64_t>(block / bytes, 1, kSlicesMax));
}

}  // namespace

LinkModel ReferenceModel() {
  return {.latency_s = 30e-6,
          .message_overhead_s = 5e-6,
          .bytes_per_s = 1.2e9,
          .reduce_bytes_per_s = 8e9,
          .incast_factor = 1.5};
}

LinkModel ModelOf(const LinkNumbers& numbers) {
  LinkModel model = ReferenceModel();
  const auto seconds = [](uint64_t ns) { return 1e-9 * static_cast<double>(ns); };
  if (numbers.latency_ns != 0) model.latency_s = seconds(numbers.latency_ns);
  if (numbers.message_ns != 0) model.message_overhead_s = seconds(numbers.message_ns);
  if (numbers.bytes_per_s != 0) model.bytes_per_s = static_cast<double>(numbers.bytes_per_s);
  return model;
}

bool Differ(const LinkModel& a, const LinkModel& b) {
  constexpr double kMuch = 1.25;
  const auto differ = [](double x, double y) { return x > kMuch * y || y > kMuch * x; };
  return differ(a.latency_s, b.latency_s) || differ(a.message_overhead_s, b.message_overhead_s) ||
         differ(a.bytes_per_s, b.bytes_per_s);
}

uint64_t BytesOf(const CollectiveSpec& call, int world) {
  const bool whole = call.kind == OpKind::kAllReduce || call.kind == OpKind::kReduce ||
                     call.kind == OpKind::kBroadcast;
  return call.count * SizeOf(call.dtype) * (whole ? 1 : static_cast<uint64_t>(world));
}

std::vector<Candidate> Candidates(const CollectiveSpec& call, const NodeMap& map,
                                  const Policy& policy) {
  std::vector<Candidate> candidates;
  if (call.kind == OpKind::kAllToAllV) return candidates;
  const uint64_t bytes = BytesOf(call, map.world());
  for (int a = 0; a < kAlgorithmCount; ++a) {
    NetSpec net = NetOf(call, map);
    if (!Become(static_cast<Algorithm>(a), policy, &net)) continue;
    LinkModel model = policy.model;
    if (net.algorithm == Algorithm::kAggregated) {
      // Hosts go round the aggregators: no receiver has more than one sender for long.
      model.incast_factor = 1;
    }
    const uint32_t slices = SlicesOf(call, map, net, policy.model);
    candidates.push_back({net, slices, PredictSeconds(CostOf(net, bytes), model, slices)});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  return candidates;
}

Shape AggregatedShape(const CollectiveSpec& call, const NodeMap& map, int32_t aggregators,
                      uint32_t slices) {
  Shape shape;
  shape.map = &map;
  shape.call = call;
  shape.net = NetOf(call, map);
  shape.net.algorithm = Algorithm::kAggregated;
  shape.net.aggregators = aggregators;
  shape.slices = slices;
  return shape;
}

Shape ChooseShape(const CollectiveSpec& call, const NodeMap& map, const Policy& policy) {
  Shape shape;
  shape.map = &map;
  shape.call = call;
  shape.net = NetOf(call, map);
  // Nobody knows the whole of an all_to_all_v: nothing to choose or to cut by.
  shape.net.algorithm = Algorithm::kPairwise;
  if (call.kind == OpKind::kAllToAllV) return shape;
  if (!policy.algorithm.has_value() || !Become(*policy.algorithm, policy, &shape.net)) {
    shape.net = Candidates(call, map, policy).front().net;
  }
  shape.slices = SlicesOf(call, map, shape.net, policy.model);
  return shape;
}

}  // namespace shunt::exchange
