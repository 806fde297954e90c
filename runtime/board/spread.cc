#include "runtime/board/spread.h"

#include <algorithm>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace shunt::board {

int PlaceFor(const cpu_set_t& allowed, const int* cpus, int participants, int participant) {
  const int here = cpus[participant];
  const int share = (participants + CPU_COUNT(&allowed) - 1) / std::max(1, CPU_COUNT(&allowed));
  const int before = static_cast<int>(std::count(cpus, cpus + participant, here));
  if (before < share) return here;
  struct Cpu {
    int64_t ranks;
    int index;
  };
  std::vector<Cpu> others;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (cpu == here || !CPU_ISSET(cpu, &allowed)) continue;
    const int64_t ranks = std::count(cpus, cpus + participants, cpu);
    if (ranks < share) others.push_back({ranks, cpu});
  }
  if (others.empty()) return here;
  std::stable_sort(others.begin(), others.end(),
                   [](const Cpu& a, const Cpu& b) { return a.ranks < b.ranks; });
  // Those who move at once do not all go to one.
  return others[static_cast<size_t>(before / share - 1) % others.size()].index;
}

int Spread::Ended(const Channel& channel, int participant) {
  const int n = channel.participants();
  if (++ended_ % kOperationsPerLook != 0 || n < 2) return -1;
  absl::InlinedVector<int, 16> cpus(static_cast<size_t>(n));
  for (int p = 0; p < n; ++p) {
    cpus[p] = static_cast<int>(channel.retired(p).cpu.load(std::memory_order_relaxed)) - 1;
  }
  if (std::count(cpus.begin(), cpus.end(), cpus[participant]) < 2) {
    crowded_ = 0;
    return -1;
  }
  if (++crowded_ < kLooks) return -1;
  crowded_ = 0;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  const int target = PlaceFor(allowed, cpus.data(), n, participant);
  return target == cpus[participant] ? -1 : target;
}

void MoveTo(int cpu) {
  cpu_set_t allowed, one;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0) return;
  if (::sched_setaffinity(0, sizeof allowed, &allowed) == 0) return;
  // None of them is to be had any more: the kernel cuts this down to what is.
  for (int any = 0; any < CPU_SETSIZE; ++any) CPU_SET(any, &allowed);
  ::sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace shunt::board
