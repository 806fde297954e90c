// What a walk along a plan keeps: when ports are free, what has arrived, how far everybody is.
// Private to this directory.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/collectives/plan/net_plan.h"
#include "runtime/collectives/sim/net_run.h"

namespace shunt::sim {

// Both ports of all participants.
class Ports {
 public:
  explicit Ports(const NetRun& run);

  // When a message that is ready at `ready_s` has arrived.
  double Pass(int from, int to, double ready_s, double bytes);
  // The longest that anybody has had a part of the slice in hand.
  double LongestHeld() const;
  double out_free(int p) const { return out_free_[p]; }
  std::vector<PortLoad>& out() { return out_; }
  std::vector<PortLoad>& in() { return in_; }

 private:
  const NetRun& run_;
  std::vector<double> out_free_, in_free_, begun_, ended_;
  std::vector<PortLoad> out_, in_;
};

// When participants have ended their rounds. Noted in the order of rounds.
class Progress {
 public:
  explicit Progress(size_t participants) : ended_(participants) {}

  void Note(int participant, uint32_t round, double at_s);
  // When a step of the round may be posted.
  double Opens(int participant, uint32_t round) const;

 private:
  struct Ended {
    uint32_t round;
    double at_s;  // it and all earlier ones
  };
  std::vector<std::vector<Ended>> ended_;
};

// What participants have, and since when.
class Holdings {
 public:
  Holdings(size_t participants, uint64_t blocks) : held_(participants), blocks_(blocks) {}

  double ReadyAt(int participant, const BlockSet& set) const;
  // Counts from the next round on.
  void Arrived(int participant, const BlockSet& set, double at_s) {
    arrived_.push_back({participant, {set, at_s}});
  }
  void EndRound();

 private:
  struct Held {
    BlockSet set;
    double since_s;
  };
  struct Arrival {
    int participant;
    Held held;
  };
  std::vector<std::vector<Held>> held_;
  std::vector<Arrival> arrived_;
  uint64_t blocks_;
};

}  // namespace shunt::sim
