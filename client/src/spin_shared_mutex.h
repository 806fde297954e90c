// A reader-writer lock for lookups of some nanoseconds that change now and then: two atomic
// operations a reader, no system call. Nobody holds it across a system call that may block.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace shunt::client {

// Meets SharedMutex: std::shared_lock and std::unique_lock work. Not recursive.
class SpinSharedMutex {
 public:
  void lock_shared() {
    while ((state_.fetch_add(1, std::memory_order_acquire) & kWriter) != 0) {
      state_.fetch_sub(1, std::memory_order_relaxed);
      while ((state_.load(std::memory_order_relaxed) & kWriter) != 0) ::sched_yield();
    }
  }
  void unlock_shared() { state_.fetch_sub(1, std::memory_order_release); }

  void lock() {
    // First the bit, which turns new readers away, then the wait for the ones inside.
    while ((state_.fetch_or(kWriter, std::memory_order_acquire) & kWriter) != 0) ::sched_yield();
    while (state_.load(std::memory_order_acquire) != kWriter) ::sched_yield();
  }
  void unlock() { state_.fetch_and(~kWriter, std::memory_order_release); }

 private:
  static constexpr uint32_t kWriter = uint32_t{1} << 31;

  std::atomic<uint32_t> state_{0};
};

}  // namespace shunt::client
