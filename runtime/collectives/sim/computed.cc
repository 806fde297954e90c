// Times of a plan without an executor: messages in the order of their rounds, each when its
// contents are there and both its ports are free. Then the first slice's time and the busiest port
// give the whole: the other slices follow at its pace.
#include <algorithm>
#include <cmath>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "runtime/collectives/sim/net_run.h"
#include "runtime/collectives/sim/plan_clock.h"

namespace shunt::sim {
namespace {

constexpr uint64_t kMessagesMax = 50'000'000;

// Alike in every participant but for a shift of the numbers.
bool IsSymmetric(const NetSpec& spec) {
  if (HasRoot(spec.kind)) return false;
  switch (spec.algorithm) {
    case Algorithm::kRing:
    case Algorithm::kBruck:
    case Algorithm::kPat:
    case Algorithm::kPatBounded:
    case Algorithm::kPairwise:
    case Algorithm::kDirect:
      return true;
    default:
      return false;
  }
}

double BlockBytes(const NetRun& run) {
  switch (run.spec.kind) {
    case OpKind::kBarrier:
      return 0;
    case OpKind::kAllReduce:
    case OpKind::kBroadcast:
    case OpKind::kReduce:
      return static_cast<double>(BlockRangeOf(run.spec, 0, run.bytes).count);
    default:
      return static_cast<double>(run.bytes) / run.spec.participants;
  }
}

// A message can leave when its sender has come to its round, and its receiver too, for it grants
// what is not sent unasked.
double OpensAt(const NetRun& run, const Progress& progress, int from, int to, uint32_t round,
               double bytes) {
  const double opens = progress.Opens(from, round);
  if (bytes <= run.cluster->eager_bytes) return opens;
  return std::max(opens,
                  progress.Opens(to, round) + run.cluster->latency_s + run.cluster->message_s);
}

// The first slice.
struct Walk {
  double end_s = 0;
  uint64_t messages = 0;
};

Walk WalkOne(const NetRun& run, Ports* ports) {
  const NetSpec& spec = run.spec;
  const double block_bytes = BlockBytes(run) / run.slices;
  // The slowest stands for all: each waits for its neighbours.
  const int slowest = static_cast<int>(
      std::min_element(run.bytes_per_s.begin(), run.bytes_per_s.end()) - run.bytes_per_s.begin());
  Walk walk;
  absl::flat_hash_map<uint32_t, double> written;  // by block: when
  std::deque<double> arrivals;                    // of what is not yet received
  Progress progress(run.bytes_per_s.size());
  const uint32_t steps = NetStepCount(spec, slowest);
  for (uint32_t i = 0; i < steps; ++i) {
    const NetStep step = NetStepAt(spec, slowest, i);
    if (step.kind == NetStep::Kind::kCombine) continue;
    if (step.kind == NetStep::Kind::kSend) {
      const double bytes = block_bytes * step.blocks.count;
      double ready = OpensAt(run, progress, slowest, slowest, step.round, bytes);
      ForEachBlock(spec, slowest, step, [&](uint32_t block) {
        if (const auto it = written.find(block); it != written.end()) {
          ready = std::max(ready, it->second);
        }
      });
      // What it sends its peer, another sends it at the same moment.
      arrivals.push_back(ports->Pass(slowest, slowest, ready, bytes));
      progress.Note(slowest, step.round, ports->out_free(slowest));
      ++walk.messages;
      continue;
    }
    const double at = arrivals.front();
    arrivals.pop_front();
    ForEachBlock(spec, slowest, step, [&](uint32_t block) { written[block] = at; });
    progress.Note(slowest, step.round, at);
    walk.end_s = std::max(walk.end_s, at);
  }
  return walk;
}

absl::StatusOr<Walk> WalkAll(const NetRun& run, Ports* ports) {
  struct Send {
    uint32_t round;
    int32_t from, to;
    BlockSet blocks;
  };
  const NetSpec& spec = run.spec;
  std::vector<Send> sends;
  for (int p = 0; p < spec.participants + spec.aggregators; ++p) {
    const uint32_t steps = NetStepCount(spec, p);
    for (uint32_t i = 0; i < steps; ++i) {
      const NetStep step = NetStepAt(spec, p, i);
      if (step.kind != NetStep::Kind::kSend) continue;
      sends.push_back({step.round, p, step.peer, step.blocks});
    }
    if (sends.size() > kMessagesMax) {
      const std::string_view name = Name(spec.algorithm);
      return absl::InvalidArgumentError(
          absl::StrCat(absl::string_view(name.data(), name.size()), " of ", spec.participants,
                       " units has more than ", kMessagesMax, " messages, expected fewer"));
    }
  }
  std::stable_sort(sends.begin(), sends.end(),
                   [](const Send& a, const Send& b) { return a.round < b.round; });
  Walk walk;
  const double block_bytes = BlockBytes(run) / run.slices;
  Holdings holdings(run.bytes_per_s.size(), BlockCount(spec));
  Progress progress(run.bytes_per_s.size());
  uint32_t round = 0;
  for (const Send& send : sends) {
    if (send.round != round) holdings.EndRound();
    round = send.round;
    const double bytes = block_bytes * send.blocks.count;
    const double ready = std::max(holdings.ReadyAt(send.from, send.blocks),
                                  OpensAt(run, progress, send.from, send.to, round, bytes));
    const double at = ports->Pass(send.from, send.to, ready, bytes);
    progress.Note(send.from, round, ports->out_free(send.from));
    progress.Note(send.to, round, at);
    holdings.Arrived(send.to, send.blocks, at);
    walk.end_s = std::max(walk.end_s, at);
    ++walk.messages;
  }
  return walk;
}

// What a failure makes of an operation that would have taken `seconds`.
void Fail(const NetRun& run, NetOutcome* outcome) {
  const Cluster& c = *run.cluster;
  const Failure* first = nullptr;
  for (const Failure& failure : c.failures) {
    if (failure.at_s >= outcome->seconds) continue;
    if (first == nullptr || failure.at_s < first->at_s) first = &failure;
  }
  if (first == nullptr) return;
  const bool dies = first->what == Failure::What::kNode;
  outcome->seconds = first->at_s + (dies ? c.latency_s : c.lost_after_s);
  outcome->failure = absl::StrCat(dies ? "node " : "the link of node ", first->node,
                                  dies ? " dies" : " falls silent", "; its peers report it");
}

}  // namespace

BusiestPort BusiestOf(const std::vector<PortLoad>& out, const std::vector<PortLoad>& in) {
  BusiestPort busiest;
  for (const bool is_out : {true, false}) {
    const std::vector<PortLoad>& loads = is_out ? out : in;
    for (size_t p = 0; p < loads.size(); ++p) {
      // Of equals the first; what differs by rounding is equal.
      if (loads[p].busy_s <= busiest.busy_s * 1.001) continue;
      busiest = {static_cast<int>(p), is_out, loads[p].bytes, loads[p].busy_s, 0};
    }
  }
  for (const std::vector<PortLoad>* loads : {&out, &in}) {
    for (const PortLoad& load : *loads) busiest.alike += load.busy_s >= busiest.busy_s * 0.999;
  }
  --busiest.alike;
  return busiest;
}

absl::StatusOr<NetOutcome> RunComputed(const NetRun& run) {
  Ports ports(run);
  Walk walk;
  const bool symmetric = IsSymmetric(run.spec);
  if (symmetric) {
    walk = WalkOne(run, &ports);
  } else {
    absl::StatusOr<Walk> all = WalkAll(run, &ports);
    if (!all.ok()) return all.status();
    walk = *all;
  }
  for (std::vector<PortLoad>* loads : {&ports.out(), &ports.in()}) {
    for (PortLoad& load : *loads) {
      load.bytes *= run.slices;
      load.busy_s *= run.slices;
    }
  }
  NetOutcome outcome;
  outcome.messages = walk.messages;
  outcome.busiest = BusiestOf(ports.out(), ports.in());
  if (symmetric) {
    // Who else is as slow is as busy, in both directions.
    const double rate = run.bytes_per_s[outcome.busiest.participant];
    outcome.busiest.alike =
        2 * static_cast<int>(std::count(run.bytes_per_s.begin(), run.bytes_per_s.end(), rate)) - 1;
  }
  // Nobody has more than a window of slices in hand.
  const double pace =
      std::max(outcome.busiest.busy_s / run.slices, ports.LongestHeld() / run.cluster->window);
  outcome.seconds = walk.end_s + pace * (run.slices - 1);
  if (HasRoot(run.spec.kind)) {
    // Meanwhile the nodes agree on the call, by recursive doubling.
    const double rounds = std::ceil(std::log2(run.spec.participants));
    outcome.seconds =
        std::max(outcome.seconds, rounds * (run.cluster->latency_s + run.cluster->message_s));
  }
  outcome.seconds += run.cluster->call_s;
  Fail(run, &outcome);
  return outcome;
}

}  // namespace shunt::sim
