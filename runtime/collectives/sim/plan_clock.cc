#include "runtime/collectives/sim/plan_clock.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/transport/wire/header.h"

namespace shunt::sim {
namespace {

// The executor is never more than so many rounds ahead of the earliest that it has not ended (see
// runtime/exchange/exchange.cc).
constexpr uint32_t kRoundsAhead = 2;

bool Overlap(const BlockSet& a, const BlockSet& b, uint64_t blocks) {
  if ((a.stride != 1 && a.count > 1) || (b.stride != 1 && b.count > 1)) return true;
  return (b.first + blocks - a.first % blocks) % blocks < a.count ||
         (a.first + blocks - b.first % blocks) % blocks < b.count;
}

}  // namespace

Ports::Ports(const NetRun& run)
    : run_(run),
      out_free_(run.bytes_per_s.size()),
      in_free_(out_free_),
      begun_(out_free_.size(), std::numeric_limits<double>::infinity()),
      ended_(out_free_),
      out_(out_free_.size()),
      in_(out_free_.size()) {}

double Ports::Pass(int from, int to, double ready_s, double bytes) {
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

double Ports::LongestHeld() const {
  double longest = 0;
  for (size_t p = 0; p < begun_.size(); ++p) longest = std::max(longest, ended_[p] - begun_[p]);
  return longest;
}

void Progress::Note(int participant, uint32_t round, double at_s) {
  std::vector<Ended>& ended = ended_[participant];
  if (ended.empty() || ended.back().round != round) {
    ended.push_back({round, ended.empty() ? 0 : ended.back().at_s});
  }
  ended.back().at_s = std::max(ended.back().at_s, at_s);
}

double Progress::Opens(int participant, uint32_t round) const {
  const std::vector<Ended>& ended = ended_[participant];
  for (auto it = ended.rbegin(); it != ended.rend(); ++it) {
    if (it->round + kRoundsAhead < round) return it->at_s;
  }
  return 0;
}

double Holdings::ReadyAt(int participant, const BlockSet& set) const {
  double ready = 0;
  for (const Held& held : held_[participant]) {
    if (Overlap(held.set, set, blocks_)) ready = std::max(ready, held.since_s);
  }
  return ready;
}

void Holdings::EndRound() {
  for (const Arrival& arrival : arrived_) {
    std::vector<Held>& all = held_[arrival.participant];
    const BlockSet& set = arrival.held.set;
    const auto same = std::find_if(all.begin(), all.end(), [&set](const Held& h) {
      return h.set.first == set.first && h.set.count == set.count && h.set.stride == set.stride;
    });
    if (same == all.end()) {
      all.push_back(arrival.held);
    } else {
      same->since_s = std::max(same->since_s, arrival.held.since_s);
    }
  }
  arrived_.clear();
}

}  // namespace shunt::sim
