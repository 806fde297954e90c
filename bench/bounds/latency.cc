#include "bench/bounds/latency.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <vector>

#include "bench/harness/control.h"
#include "bench/harness/record.h"
#include "runtime/core/clock.h"
#include "runtime/core/futex.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

constexpr int kBlocks = 7;
constexpr uint32_t kStop = UINT32_MAX;

// Two words, each written by one side only.
struct Lines {
  alignas(128) std::atomic<uint32_t> ping;
  alignas(128) std::atomic<uint32_t> pong;
};

void Await(std::atomic<uint32_t>& word, uint32_t old, bool sleep) {
  while (word.load(std::memory_order_acquire) == old) {
    if (sleep) FutexWait(&word, old);
  }
}

void Post(std::atomic<uint32_t>& word, uint32_t value, bool sleep) {
  word.store(value, std::memory_order_release);
  if (sleep) FutexWake(&word, 1);
}

// Pins the calling process to the `index`-th core of `allowed`.
void Pin(const cpu_set_t& allowed, int index) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && index-- == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      ::sched_setaffinity(0, sizeof(one), &one);
    }
  }
}

absl::StatusOr<double> RoundTripUs(bool sleep, int other_core, uint32_t iterations) {
  void* memory =
      ::mmap(nullptr, sizeof(Lines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "mmap");
  Lines& lines = *new (memory) Lines{};
  cpu_set_t allowed;
  ::sched_getaffinity(0, sizeof(allowed), &allowed);
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Pin(allowed, other_core);
    for (uint32_t turn = 0;;) {
      Await(lines.ping, turn, sleep);
      turn = lines.ping.load();
      if (turn == kStop) ::_exit(0);
      Post(lines.pong, turn, sleep);
    }
  }
  Pin(allowed, 0);
  std::vector<double> each;
  uint32_t turn = 0;
  for (int block = 0; block <= kBlocks; ++block) {
    const int64_t start = NowNs();
    for (uint32_t i = 0; i < iterations; ++i) {
      Post(lines.ping, turn + 1, sleep);
      Await(lines.pong, turn, sleep);
      ++turn;
    }
    const double us = static_cast<double>(NowNs() - start) / 1e3 / iterations;
    if (block > 0) each.push_back(us);  // the first one warms up
  }
  Post(lines.ping, kStop, true);
  ::waitpid(child, nullptr, 0);
  ::sched_setaffinity(0, sizeof(allowed), &allowed);
  ::munmap(memory, sizeof(Lines));
  return Median(each);
}

}  // namespace

absl::StatusOr<double> CacheLineRoundTripUs() {
  if (UsableCores() < 2) return absl::UnavailableError("needs two cores");
  return RoundTripUs(false, 1, 50'000);
}

absl::StatusOr<double> FutexRoundTripUs() {
  return RoundTripUs(true, UsableCores() < 2 ? 0 : 1, 2'000);
}

absl::StatusOr<double> ContextSwitchUs() {
  SHUNT_ASSIGN_OR_RETURN(const double round_trip, RoundTripUs(true, 0, 5'000));
  return round_trip / 2;
}

}  // namespace shunt::bench
