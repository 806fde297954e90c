#include "client/src/submission_ring.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client {
namespace {

// How long a full submission queue is waited for. The daemon empties it in microseconds.
constexpr int64_t kRingFullNs = 2'000'000'000;
// A daemon that died wakes nobody: so often a waiting thread looks whether it is still there.
constexpr int64_t kDaemonCheckNs = 100'000'000;
constexpr int64_t kDayNs = int64_t{86'400} * 1'000'000'000;
// A transfer of some blocks ends in about that time. On a machine with few CPUs the daemon may need
// the one that we spin on, so it is not long, and yielding comes after it.
constexpr int kSpins = 200;
constexpr int kYields = 20;

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

absl::Status SubmissionRing::Attach(int ring_fd, UniqueFd doorbell, uint32_t entries) {
  if (!ring::CheckEntries(entries).ok()) {
    return absl::InternalError(absl::StrCat("shuntd made a ring of ", entries, " entries"));
  }
  const size_t bytes = ring::BytesFor(entries);
  SHUNT_RETURN_IF_ERROR(CheckSealedMemfd(ring_fd, bytes));
  SHUNT_ASSIGN_OR_RETURN(memory_, Mapping::Map(ring_fd, bytes));
  ::madvise(memory_.data(), bytes, MADV_DONTFORK);
  SHUNT_ASSIGN_OR_RETURN(ring_, ring::RingClient::Attach(memory_.data(), bytes, entries));
  doorbell_ = std::move(doorbell);
  return absl::OkStatus();
}

absl::Status SubmissionRing::Submit(const ring::Submission& submission) {
  std::lock_guard lock(pushing_);
  ring::Submission entry = submission;
  if (entry.token == 0) entry.token = NextToken();
  Collect();
  ring::RingClient::Pushed pushed = ring_.Push(entry);
  for (int64_t deadline_ns = 0; pushed == ring::RingClient::Pushed::kFull;
       pushed = ring_.Push(entry)) {
    // Where another thread collects, what has ended is not outstanding for long.
    if (Collect() && ring::Completes(entry.opcode) && ring_.outstanding() >= ring_.entries()) {
      return absl::ResourceExhaustedError(
          absl::StrCat(ring_.entries(),
                       " asynchronous operations and transfers of this session are in flight, "
                       "which is the most there can be: wait for one of them"));
    }
    const int64_t now_ns = NowNs();
    if (deadline_ns == 0) deadline_ns = now_ns + kRingFullNs;
    if (lease_->Gone()) {
      return absl::UnavailableError(
          "shuntd is gone; the session is over. Once shuntd runs again, open a new one");
    }
    if (now_ns >= deadline_ns) {
      if (ring_.outstanding() >= ring_.entries()) {
        return absl::ResourceExhaustedError(
            absl::StrCat(ring_.entries(),
                         " asynchronous operations and transfers of this session are in "
                         "flight, which is the most there can be: wait for one of them"));
      }
      return absl::UnavailableError(
          "shuntd does not empty the session's ring: it is stopped or overloaded");
    }
    ::sched_yield();
  }
  if (pushed == ring::RingClient::Pushed::kDoneRingDoorbell) SignalEventFd(doorbell_.get());
  return absl::OkStatus();
}

size_t SubmissionRing::Pop() {
  ring::Completion completions[32];
  size_t all = 0;
  size_t count;
  do {
    count = ring_.PopCompletions(completions);
    for (size_t i = 0; i < count; ++i) sink_(completions[i]);
    all += count;
  } while (count == std::size(completions));
  if (all > 0) {
    std::lock_guard lock(waiting_);
    looked_.notify_all();
  }
  return all;
}

bool SubmissionRing::Collect() {
  std::unique_lock lock(collecting_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  Pop();
  return true;
}

void SubmissionRing::Look(const std::function<bool()>& done, int64_t deadline_ns) {
  for (int i = 0; i < kSpins + kYields && !done(); ++i) {
    if (i < kSpins) {
      Relax();
    } else {
      ::sched_yield();
    }
    Pop();
  }
  while (!done()) {
    const int64_t left_ns = deadline_ns - NowNs();
    if (left_ns <= 0) return;
    // Only the holder of the lock pops, so nothing can come and go between the look and the sleep.
    if (ring_.WaitForCompletion(std::chrono::nanoseconds(std::min(left_ns, kDaemonCheckNs)))) {
      Pop();
    } else if (lease_->Gone()) {
      Pop();  // its last ones
      gone_.store(true, std::memory_order_release);
      return;
    }
  }
}

bool SubmissionRing::Wait(const std::function<bool()>& done, int64_t deadline_ns) {
  std::unique_lock lock(waiting_);
  while (!done()) {
    const int64_t now_ns = NowNs();
    if (gone() || now_ns >= deadline_ns) return false;
    if (looking_) {
      // The clock's value is added to: a day is as good as forever.
      const int64_t until_ns = std::min(deadline_ns, now_ns + kDayNs);
      looked_.wait_until(lock,
                         std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until_ns)));
      continue;
    }
    looking_ = true;
    lock.unlock();
    {
      std::lock_guard collecting(collecting_);
      Look(done, deadline_ns);
    }
    lock.lock();
    looking_ = false;
    // Another one must look on.
    looked_.notify_all();
  }
  return true;
}

void SubmissionRing::CloseInChild() {
  if (doorbell_.valid()) ::close(doorbell_.Release());
}

}  // namespace shunt::client
