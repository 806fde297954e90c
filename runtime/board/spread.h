// Ranks that outnumber CPUs take turns instead of sleeping, so that to the scheduler each looks too
// busy to be moved: woken together, all may stay on one CPU for a tenth of a second while others
// idle (seen: 4 ranks, 64 bytes: 4.0 µs and more an operation on one CPU, 2.1 at best on two). They
// note where they run, and who is one too many moves itself.
#pragma once

#include <sched.h>

#include <cstdint>

#include "runtime/board/layout.h"

namespace shunt::board {

// One rank's, for one channel. Not thread-safe.
class Spread {
 public:
  // After an operation of this rank's. Returns the CPU that the calling thread should move to, or
  // -1: for a while now more of the participants have shared its own than would if all CPUs that it
  // may run on had their share, and it is not among the first of them.
  int Ended(const Channel& channel, int participant);

 private:
  static constexpr uint32_t kOperationsPerLook = 16;
  static constexpr uint32_t kLooks = 8;

  uint32_t ended_ = 0;
  uint32_t crowded_ = 0;
};

// Where a thread that runs on `here` should go if it is one of too many there: `cpus` are those
// that the participants run on, in order, `participant` is itself one of them. Returns `here` if it
// may stay.
int PlaceFor(const cpu_set_t& allowed, const int* cpus, int participants, int participant);

// Moves the calling thread, and lets the scheduler move it again. What it may run on is the same
// afterwards, but counts as chosen by the thread (sched_setaffinity(2)).
void MoveTo(int cpu);

}  // namespace shunt::board
