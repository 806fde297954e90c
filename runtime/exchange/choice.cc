#include "runtime/exchange/choice.h"

#include <algorithm>

namespace shunt::exchange {
namespace {

constexpr Algorithm kCandidates[] = {
    Algorithm::kRing,     Algorithm::kDoubleTree, Algorithm::kHalvingDoubling,
    Algorithm::kBruck,    Algorithm::kPat,        Algorithm::kRecursiveDoubling,
    Algorithm::kPairwise, Algorithm::kBinomial};

}  // namespace

uint64_t BytesOf(const CollectiveSpec& call, int world) {
  const bool whole = call.kind == OpKind::kAllReduce || call.kind == OpKind::kReduce ||
                     call.kind == OpKind::kBroadcast;
  return call.count * SizeOf(call.dtype) * (whole ? 1 : static_cast<uint64_t>(world));
}

Shape ChooseShape(const CollectiveSpec& call, const NodeMap& map, const LinkModel& model) {
  Shape shape;
  shape.map = &map;
  shape.call = call;
  shape.net.kind = call.kind;
  shape.net.participants = map.nodes();
  shape.net.root = HasRoot(call.kind) ? map.node_of[call.root] : 0;
  if (call.kind == OpKind::kAllToAllV) {
    // Each node knows its own counts only: nothing to choose or to cut by.
    shape.net.kind = OpKind::kAllToAll;
    shape.net.algorithm = Algorithm::kPairwise;
    return shape;
  }
  const uint64_t bytes = BytesOf(call, map.world());
  const absl::StatusOr<NetChoice> choice = ChooseAlgorithm(shape.net, bytes, model, kCandidates);
  if (choice.ok()) shape.net = choice->spec;
  const uint64_t block = bytes / std::max<uint64_t>(1, BlockCount(shape.net));
  shape.slices = static_cast<uint32_t>(std::clamp<uint64_t>(block / kSliceBytes, 1, kSlicesMax));
  return shape;
}

}  // namespace shunt::exchange
