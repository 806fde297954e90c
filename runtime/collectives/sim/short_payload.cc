#include "runtime/collectives/sim/short_payload.h"

#include <algorithm>

namespace shunt::sim {
namespace {

// What all nodes' messages together may have of real bytes, and the least of one.
constexpr double kBytesMax = 64 << 20, kMessageBytesMin = 1024;

bool IsExchange(OpKind kind) { return kind == OpKind::kAllToAll || kind == OpKind::kAllToAllV; }

}  // namespace

uint64_t ScaleOf(const NetRun& run) {
  const double participants = run.spec.participants;
  double block = static_cast<double>(run.bytes) / participants;
  if (IsExchange(run.spec.kind)) block /= participants;
  const double total = static_cast<double>(run.bytes) * participants * run.cluster->operations;
  const double scale = std::min(total / kBytesMax, block / run.slices / kMessageBytesMin);
  return std::max<uint64_t>(1, static_cast<uint64_t>(scale));
}

CollectiveSpec CallOf(const NetRun& run, uint64_t scale) {
  CollectiveSpec call{};
  call.kind = run.spec.kind == OpKind::kAllToAllV ? OpKind::kAllToAll : run.spec.kind;
  call.dtype = DataType::kUint8;
  call.redop = Redop::kSum;
  call.root = run.spec.root;
  call.count = run.bytes / scale;
  const auto units = static_cast<uint64_t>(run.spec.participants);
  switch (call.kind) {
    case OpKind::kBarrier:
      call.count = 0;
      break;
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast:
      break;
    default:
      call.count /= units;
  }
  return call;
}

transport::FakeNetwork::Options NetworkOptions(const Cluster& c, uint64_t scale) {
  transport::FakeNetwork::Options options;
  options.latency_ns = static_cast<int64_t>(c.latency_s * 1e9);
  options.bytes_per_second = 1e18;  // the ports limit
  options.lost_after_ns = static_cast<int64_t>(c.lost_after_s * 1e9);
  options.payload_scale = static_cast<double>(scale);
  options.engine.limits.eager_bytes = c.eager_bytes / scale;
  options.engine.piece_bytes = std::max<uint32_t>(1, c.piece_bytes / static_cast<uint32_t>(scale));
  return options;
}

}  // namespace shunt::sim
