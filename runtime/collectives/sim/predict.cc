#include "runtime/collectives/sim/predict.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "runtime/collectives/sim/local_phase.h"
#include "runtime/collectives/sim/net_run.h"

namespace shunt::sim {
namespace {

// About two seconds; the second one is what a user who asks for it may wait for.
constexpr double kExecutedWorkAuto = 1e8, kExecutedWorkMax = 5e9;
// Every node of an executed run has an engine of its own.
constexpr int kExecutedUnitsMax = 1024;

absl::string_view Word(std::string_view text) { return {text.data(), text.size()}; }

// Rails that are alike take the same time: each class of them runs once.
struct RailClass {
  int rail;  // its first one
  std::vector<double> rates;
};

std::vector<RailClass> ClassesOf(const Cluster& cluster, int* usable) {
  std::map<std::vector<double>, int> first;
  std::vector<RailClass> classes;
  *usable = 0;
  for (int rail = 0; rail < cluster.rails_of_unit(); ++rail) {
    if (rail > 0 && cluster.links.empty()) {
      *usable = cluster.rails_of_unit();
      break;
    }
    std::vector<double> rates = RailRates(cluster, rail);
    if (*std::min_element(rates.begin(), rates.end()) <= 0) continue;
    ++*usable;
    if (first.emplace(rates, rail).second) classes.push_back({rail, std::move(rates)});
  }
  return classes;
}

uint32_t SlicesOf(const Cluster& cluster, const NetSpec& spec, uint64_t bytes) {
  // As the daemon cuts.
  const uint64_t block = bytes / std::max<uint64_t>(1, BlockCount(spec));
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(block / cluster.slice_bytes, 1, cluster.slices_max));
}

absl::StatusOr<NetOutcome> RunRail(const NetRun& run, Method* method) {
  const double work = ExecutedWork(run);
  const int units = run.spec.participants + run.spec.aggregators;
  if (*method == Method::kExecuted && (work > kExecutedWorkMax || units > kExecutedUnitsMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Word(Name(run.spec.kind)), " by ", Word(Name(run.spec.algorithm)), " of ",
                     run.spec.participants, " units in ", run.slices,
                     " slices is too much to be executed, expected the method computed or auto"));
  }
  if (*method == Method::kAuto) {
    const bool quick = work <= kExecutedWorkAuto && units <= kExecutedUnitsMax;
    *method = quick ? Method::kExecuted : Method::kComputed;
  }
  return *method == Method::kExecuted ? RunExecuted(run) : RunComputed(run);
}

// All that is known of the time but NVLink.
struct Between {
  double seconds = 0;
  uint32_t slices = 1;
  std::string failure;
};

absl::StatusOr<Between> RunBetween(const Cluster& cluster, const Query& query, Prediction* p) {
  Between between;
  NetRun run;
  run.cluster = &cluster;
  run.spec.kind = query.kind;
  run.spec.algorithm = query.algorithm;
  run.spec.participants = cluster.units();
  run.spec.root = HasRoot(query.kind) ? query.root / cluster.domain() : 0;
  if (query.algorithm == Algorithm::kAggregated) run.spec.aggregators = cluster.aggregators;
  if (absl::Status s = ValidateNetSpec(run.spec); !s.ok()) return s;
  int usable = 0;
  const std::vector<RailClass> classes = ClassesOf(cluster, &usable);
  // What the ranks of a unit have for all others does not become less by their being together.
  const bool exchanges = query.kind == OpKind::kAllToAll || query.kind == OpKind::kAllToAllV;
  const double unit_bytes = static_cast<double>(query.bytes) * (exchanges ? cluster.domain() : 1);
  run.bytes = static_cast<uint64_t>(unit_bytes / usable);
  run.slices = between.slices = SlicesOf(cluster, run.spec, run.bytes);
  p->method = query.method;
  for (const RailClass& c : classes) {
    run.bytes_per_s = c.rates;
    run.bytes_per_s.resize(c.rates.size() + run.spec.aggregators,
                           cluster.bytes_per_s * cluster.efficiency);
    const absl::StatusOr<NetOutcome> outcome = RunRail(run, &p->method);
    if (!outcome.ok()) return outcome.status();
    p->work += outcome->messages;
    const bool fails_first = !outcome->failure.empty() &&
                             (between.failure.empty() || outcome->seconds < between.seconds);
    const bool slowest = between.failure.empty() && outcome->seconds >= between.seconds;
    if (!fails_first && !slowest) continue;
    between.seconds = outcome->seconds;
    between.failure = outcome->failure;
    const BusiestPort& busiest = outcome->busiest;
    p->link =
        absl::StrCat(RailName(cluster, busiest.participant, c.rail), busiest.out ? " out" : " in");
    p->link_bytes = busiest.bytes;
    p->link_busy = busiest.busy_s;  // seconds, so far
    p->links_alike = busiest.alike;
    if (cluster.links.empty()) p->links_alike = (busiest.alike + 1) * usable - 1;
  }
  return between;
}

}  // namespace

double BusFactor(OpKind kind, int world) {
  const double n = world;
  switch (kind) {
    case OpKind::kAllReduce:
      return 2 * (n - 1) / n;
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
    case OpKind::kGather:
    case OpKind::kScatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

absl::StatusOr<Prediction> Predict(const Cluster& cluster, const Query& query) {
  if (query.root < 0 || query.root >= cluster.world()) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", query.root, ", expected 0 to ", cluster.world() - 1));
  }
  Prediction p;
  Between between;
  between.seconds = cluster.call_s;
  if (cluster.units() > 1) {
    absl::StatusOr<Between> ran = RunBetween(cluster, query, &p);
    if (!ran.ok()) return ran.status();
    between = *std::move(ran);
  }
  p.failure = between.failure;
  p.seconds = between.seconds;
  if (!p.failure.empty()) {
    p.link_busy = p.seconds > 0 ? std::min(1.0, p.link_busy / p.seconds) : 0;
    return p;
  }
  // Slice by slice the phases inside the units overlap with the exchange between them: the longer
  // one sets the pace, the other one is paid for one slice.
  const LocalPhases local = LocalPhasesOf(cluster, query.kind, static_cast<double>(query.bytes));
  const double local_s = local.bytes() == 0 ? 0 : local.bytes() / cluster.nvlink_bytes_per_s;
  const double slices = between.slices;
  p.seconds = std::max(between.seconds + local_s / slices, local_s + between.seconds / slices) +
              local.latencies * cluster.nvlink_latency_s;
  if (cluster.units() == 1)
    p.seconds = local_s + between.seconds + local.latencies * cluster.nvlink_latency_s;
  if (local_s > p.link_busy) {
    p.link = "NVLink of GPU 0";
    p.link_bytes = local.bytes();
    p.link_busy = local_s;
    p.links_alike = cluster.world() - 1;
  }
  if (p.seconds > 0) {
    p.link_busy = std::min(1.0, p.link_busy / p.seconds);
    if (query.kind != OpKind::kBarrier) {
      p.algbw = static_cast<double>(query.bytes) / p.seconds;
      p.busbw = p.algbw * BusFactor(query.kind, cluster.world());
    }
  }
  return p;
}

}  // namespace shunt::sim
