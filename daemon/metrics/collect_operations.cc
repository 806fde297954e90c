// Collectives, sends and receives: what ranks count on their boards, and what the daemon sees
// through.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "daemon/metrics/collector.h"
#include "runtime/collectives/plan/net_plan.h"

namespace shunt::daemon::metrics {
namespace {

std::string AlgorithmName(size_t algorithm) {
  return algorithm == OperationProbe::kBoard ? "board"
                                             : std::string(Name(static_cast<Algorithm>(algorithm)));
}

std::string KindName(size_t kind) { return std::string(Name(static_cast<OpKind>(kind))); }

}  // namespace

void Collector::Operations(Page* page) {
  // Living ones first: one that goes meanwhile has its numbers kept before it is missing here.
  board::Totals totals = {};
  const auto add = [&totals](const board::Totals& more) {
    for (size_t kind = 0; kind < totals.size(); ++kind) {
      totals[kind].succeeded += more[kind].succeeded;
      totals[kind].failed += more[kind].failed;
      totals[kind].bytes += more[kind].bytes;
    }
  };
  for (const auto& communicator : sources_.communicators->List()) add(communicator->Totals());
  add(sources_.probe->operations.kept());
  // One that is about to go is in neither for a moment, and members may write what they like: a
  // counter never falls.
  for (size_t kind = 0; kind < totals.size(); ++kind) {
    shown_[kind].succeeded = std::max(shown_[kind].succeeded, totals[kind].succeeded);
    shown_[kind].failed = std::max(shown_[kind].failed, totals[kind].failed);
    shown_[kind].bytes = std::max(shown_[kind].bytes, totals[kind].bytes);
  }

  Family& calls = page->Counter("shunt_operations_total",
                                "Calls of this node's ranks that have ended, each rank's its own: "
                                "an all_reduce of four ranks here counts four.");
  Family& bytes = page->Counter(
      "shunt_operation_bytes_total",
      "Of calls of this node's ranks that have succeeded: bytes of the larger of input and output; "
      "all_to_all_v of plain gRPC clients counts none.");
  for (size_t kind = 0; kind < shown_.size(); ++kind) {
    const std::string op = KindName(kind);
    calls.Add({{"op", op}, {"outcome", "success"}}, shown_[kind].succeeded);
    calls.Add({{"op", op}, {"outcome", "failure"}}, shown_[kind].failed);
    bytes.Add({{"op", op}}, shown_[kind].bytes);
  }

  const OperationProbe& probe = sources_.probe->operations;
  Family& took = page->Histogram(
      "shunt_operation_duration_seconds",
      "Operations that the daemon has seen through to their success: between nodes from the last "
      "call on this node, on one node (algorithm \"board\") from the first asynchronous one.");
  Family& busbw = page->Gauge("shunt_operation_busbw_bytes_per_second",
                              "Bus bandwidth, as nccl-tests has it, of the last operation of at "
                              "least 512 KiB that the daemon has seen through.");
  for (size_t kind = 0; kind < probe.durations.size(); ++kind) {
    for (size_t algorithm = 0; algorithm < OperationProbe::kAlgorithms; ++algorithm) {
      const Durations& durations = probe.durations[kind][algorithm];
      if (durations.Read().count == 0) continue;
      took.Add({{"op", KindName(kind)}, {"algorithm", AlgorithmName(algorithm)}}, durations);
    }
    if (probe.busbw[kind].value() != 0)
      busbw.Add({{"op", KindName(kind)}}, probe.busbw[kind].value());
  }
  page->Counter("shunt_operations_seen_failed_total",
                "Operations that the daemon was to see through, and that failed.")
      .Add({}, probe.failed.value());
  Family& fallbacks = page->Counter(
      "shunt_route_fallbacks_total",
      "Ways that were to be taken and were not. aggregated: communicators that go round their "
      "nodes "
      "since they lost an aggregator; registered: pieces that RDMA moved without a registration "
      "from the cache.");
  fallbacks.Add({{"route", "aggregated"}}, sources_.probe->aggregators_lost.value());
  if (sources_.links != nullptr) {
    const transport::RegistrationTally& cache = sources_.links->registrations;
    fallbacks.Add({{"route", "registered"}}, cache.full.value() + cache.failures.value());
  }
}

void Collector::Communicators(Page* page) {
  auto communicators = sources_.communicators->List();
  std::sort(communicators.begin(), communicators.end(),
            [](const auto& a, const auto& b) { return a->id() < b->id(); });
  std::set<std::string> living;
  for (const auto& communicator : communicators) living.insert(communicator->key().name);
  communicator_names_.Retain(living);

  std::map<std::string, std::optional<board::Lateness>> late;
  std::map<uint64_t, Counted> counted;
  for (const auto& communicator : communicators) {
    const std::string name = communicator_names_.Of(communicator->key().name);
    Counted now;
    for (const board::KindTotals& kind : communicator->Totals()) now.calls += kind.succeeded;
    now.exchanging_ns = communicator->exchanging_ns();
    // What has come since the last look; members may write what they like, so it may be less.
    const Counted before = counted_[communicator->id()];
    now.calls = std::max(now.calls, before.calls);
    by_name_[name].calls += now.calls - before.calls;
    by_name_[name].exchanging_ns += now.exchanging_ns - before.exchanging_ns;
    counted[communicator->id()] = now;

    std::optional<board::Lateness>& worst = late[name];
    auto lateness = communicator->Lateness();
    if (!lateness.has_value()) continue;
    lateness->rank = communicator->numbers()[lateness->rank];
    if (!worst.has_value() || lateness->skew_seconds > worst->skew_seconds) worst = lateness;
  }
  counted_ = std::move(counted);
  std::erase_if(by_name_, [&](const auto& entry) { return !late.contains(entry.first); });

  page->Gauge("shunt_communicators", "Communicators that have members on this node.")
      .Add({}, static_cast<uint64_t>(communicators.size()));
  Family& calls = page->Counter("shunt_communicator_operations_total",
                                "Calls of this node's ranks that have succeeded on communicators "
                                "of this name. Names that have one are counted as long as one is "
                                "joined; beyond 256 at a time they share \"other\".");
  Family& exchanging = page->Counter(
      "shunt_communicator_exchange_seconds_total",
      "How long operations with other nodes have taken here. The node that the others wait for has "
      "the least.");
  Family& skew = page->Gauge("shunt_rank_arrival_skew_seconds",
                             "Between the first and the last of this node's ranks to call, mean "
                             "of the last few collectives; or how long those who have called the "
                             "next have waited, if that is more.");
  Family& slowest = page->Gauge("shunt_slowest_rank",
                                "The rank, by its number in the communicator, that came last to "
                                "them, of this node's.");
  for (const auto& [name, worst] : late) {
    const Counted& of = by_name_[name];
    calls.Add({{"communicator", name}}, of.calls);
    exchanging.Add({{"communicator", name}}, 1e-9 * static_cast<double>(of.exchanging_ns));
    if (!worst.has_value()) continue;
    skew.Add({{"communicator", name}}, worst->skew_seconds);
    slowest.Add({{"communicator", name}}, static_cast<double>(worst->rank));
  }
}

}  // namespace shunt::daemon::metrics
