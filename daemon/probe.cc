#include "daemon/probe.h"

namespace shunt::daemon {
namespace {

// Smaller ones are all latency: their rate says nothing of the way.
constexpr uint64_t kBusBytesMin = 512 << 10;

}  // namespace

void OperationProbe::Ended(OpKind kind, size_t algorithm, int64_t took_ns, uint64_t bus_bytes) {
  const auto k = static_cast<size_t>(kind);
  durations[k][algorithm].Add(took_ns);
  if (bus_bytes < kBusBytesMin || took_ns <= 0) return;
  busbw[k].Set(
      static_cast<uint64_t>(1e9 * static_cast<double>(bus_bytes) / static_cast<double>(took_ns)));
}

void OperationProbe::Keep(const board::Totals& totals) {
  for (size_t kind = 0; kind < kept_.size(); ++kind) {
    kept_[kind].succeeded.Add(totals[kind].succeeded);
    kept_[kind].failed.Add(totals[kind].failed);
    kept_[kind].bytes.Add(totals[kind].bytes);
  }
}

board::Totals OperationProbe::kept() const {
  board::Totals totals;
  for (size_t kind = 0; kind < kept_.size(); ++kind) {
    totals[kind] = {kept_[kind].succeeded.value(), kept_[kind].failed.value(),
                    kept_[kind].bytes.value()};
  }
  return totals;
}

void TransferProbe::Ended(const TransferReport& report, p2p::Priority priority) {
  OfRoute& route = routes[static_cast<size_t>(report.route)];
  if (!report.outcome.ok()) return route.failed.Add();
  route.succeeded.Add();
  route.bytes[static_cast<size_t>(priority)].Add(report.bytes);
  route.durations.Add(static_cast<int64_t>(report.waited_ns + report.moved_ns));
}

uint64_t BusBytes(const CollectiveSpec& spec, int world) {
  const auto n = static_cast<uint64_t>(world);
  const uint64_t block = spec.count * SizeOf(spec.dtype);
  switch (spec.kind) {
    case OpKind::kAllReduce:
      return n == 0 ? 0 : 2 * (n - 1) * block / n;
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
    case OpKind::kGather:
    case OpKind::kScatter:
      return n == 0 ? 0 : (n - 1) * block;
    case OpKind::kReduce:
    case OpKind::kBroadcast:
    case OpKind::kSend:
    case OpKind::kRecv:
      return block;
    case OpKind::kBarrier:
    case OpKind::kAllToAllV:
      break;
  }
  return 0;
}

}  // namespace shunt::daemon
