// Sleeping on a word of memory that several processes map. Never FUTEX_PRIVATE: the kernel must
// find the waiter by the page, not by the address.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>

namespace shunt {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4,
              "the kernel reads the word as 32 plain bits");

enum class FutexResult {
  kWoken,    // a wake, or a spurious one: look at the word again
  kChanged,  // the word was not `expected` any more; did not sleep
  kTimedOut,
};

// Sleeps while *word == expected, at most `timeout` (negative: returns at once if it would sleep;
// nanoseconds::max(): forever). A signal counts as kWoken. The caller loops.
inline FutexResult FutexWait(const std::atomic<uint32_t>* word, uint32_t expected,
                             std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max()) {
  timespec relative{};
  const timespec* limit = nullptr;
  if (timeout != std::chrono::nanoseconds::max()) {
    const int64_t ns = timeout.count() > 0 ? timeout.count() : 0;
    relative.tv_sec = ns / 1'000'000'000;
    relative.tv_nsec = ns % 1'000'000'000;
    limit = &relative;
  }
  const long result = ::syscall(SYS_futex, word, FUTEX_WAIT, expected, limit, nullptr, 0);
  if (result == 0) return FutexResult::kWoken;
  if (errno == EAGAIN) return FutexResult::kChanged;
  if (errno == ETIMEDOUT) return FutexResult::kTimedOut;
  return FutexResult::kWoken;
}

// Wakes up to `count` sleepers; returns how many. The caller changes the word first.
inline int FutexWake(const std::atomic<uint32_t>* word, int count = INT_MAX) {
  const long woken = ::syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  return woken > 0 ? static_cast<int>(woken) : 0;
}

}  // namespace shunt
