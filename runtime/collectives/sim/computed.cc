// Times of a plan without an executor: messages in the order of their rounds, each when its
// contents are there and both its ports are free. Then the first slice's time and the busiest port
// give the whole: the other slices follow at its pace.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "runtime/collectives/sim/net_run.h"
#include "runtime/transport/wire/header.h"

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

class Ports {
 public:
  explicit Ports(const NetRun& run)
      : run_(run),
        out_free_(run.bytes_per_s.size()),
        in_free_(out_free_),
        begun_(out_free_.size(), std::numeric_limits<double>::infinity()),
        ended_(out_free_),
        out_(out_free_.size()),
        in_(out_free_.size()) {}

  // When a message that is ready at `ready_s` has arrived.
  double Pass(int from, int to, double ready_s, double bytes) {
    const Cluster& c = *run_.cluster;
    const double frames = std::max(1.0, std::ceil(bytes / c.piece_bytes));
    const double all = bytes + frames * static_cast<double>(transport::wire::kHeaderBytes);
    const double out_s = all / run_.bytes_per_s[from] + frames * c.message_s;
    const double in_s = all / run_.bytes_per_s[to];
    const double begin = std::max(ready_s, out_free_[from]);
    out_free_[from] = begin + out_s;
    in_free_[to] = std::max(begin + c.latency_s, in_free_[to]) + in_s;
    out_[from].bytes += all;
    out_[from].busy_s += out_s;
    in_[to].bytes += all;
    in_[to].busy_s += in_s;
    const double arrived = std::max(in_free_[to], out_free_[from] + c.latency_s);
    begun_[from] = std::min(begun_[from], begin);
    begun_[to] = std::min(begun_[to], arrived);
    ended_[from] = std::max(ended_[from], out_free_[from]);
    ended_[to] = std::max(ended_[to], arrived);
    return arrived;
  }
  // The longest that anybody has had a part of the slice in hand.
  double LongestHeld() const {
    double longest = 0;
    for (size_t p = 0; p < begun_.size(); ++p) longest = std::max(longest, ended_[p] - begun_[p]);
    return longest;
  }
  double out_free(int p) const { return out_free_[p]; }
  std::vector<PortLoad>& out() { return out_; }
  std::vector<PortLoad>& in() { return in_; }

 private:
  const NetRun& run_;
  std::vector<double> out_free_, in_free_, begun_, ended_;
  std::vector<PortLoad> out_, in_;
};

// The executor is never more than so many rounds ahead of the earliest that it has not ended (see
// runtime/exchange/exchange.cc).
constexpr uint32_t kRoundsAhead = 2;

// When participants have ended their rounds. Noted in the order of rounds.
class Progress {
 public:
  explicit Progress(size_t participants) : ended_(participants) {}

  void Note(int participant, uint32_t round, double at_s) {
    std::vector<Ended>& ended = ended_[participant];
    if (ended.empty() || ended.back().round != round) {
      ended.push_back({round, ended.empty() ? 0 : ended.back().at_s});
    }
    ended.back().at_s = std::max(ended.back().at_s, at_s);
  }
  // When a step of the round may be posted.
  double Opens(int participant, uint32_t round) const {
    const std::vector<Ended>& ended = ended_[participant];
    for (auto it = ended.rbegin(); it != ended.rend(); ++it) {
      if (it->round + kRoundsAhead < round) return it->at_s;
    }
    return 0;
  }

 private:
  struct Ended {
    uint32_t round;
    double at_s;  // it and all earlier ones
  };
  std::vector<std::vector<Ended>> ended_;
};

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

bool Overlap(const BlockSet& a, const BlockSet& b, uint64_t blocks) {
  if ((a.stride != 1 && a.count > 1) || (b.stride != 1 && b.count > 1)) return true;
  return (b.first + blocks - a.first % blocks) % blocks < a.count ||
         (a.first + blocks - b.first % blocks) % blocks < b.count;
}

// What participants have, and since when.
class Holdings {
 public:
  Holdings(size_t participants, uint64_t blocks) : held_(participants), blocks_(blocks) {}

  double ReadyAt(int participant, const BlockSet& set) const {
    double ready = 0;
    for (const Held& held : held_[participant]) {
      if (Overlap(held.set, set, blocks_)) ready = std::max(ready, held.since_s);
    }
    return ready;
  }
  // Counts from the next round on.
  void Arrived(int participant, const BlockSet& set, double at_s) {
    arrived_.push_back({participant, {set, at_s}});
  }
  void EndRound() {
    for (const auto& [participant, held] : arrived_) {
      std::vector<Held>& all = held_[participant];
      const auto same = std::find_if(all.begin(), all.end(), [&](const Held& h) {
        return h.set.first == held.set.first && h.set.count == held.set.count &&
               h.set.stride == held.set.stride;
      });
      if (same == all.end()) {
        all.push_back(held);
      } else {
        same->since_s = std::max(same->since_s, held.since_s);
      }
    }
    arrived_.clear();
  }

 private:
  struct Held {
    BlockSet set;
    double since_s;
  };
  std::vector<std::vector<Held>> held_;
  std::vector<std::pair<int, Held>> arrived_;
  uint64_t blocks_;
};

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
