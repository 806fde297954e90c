// Threads for calls that block. One is there from the start, more come with the calls. They take no
// signals: a write beyond RLIMIT_FSIZE is an error there.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"

namespace shunt::storage {

class Pool {
 public:
  // Adds to the event descriptor `wake_fd`, which outlives it, whenever something can be reaped.
  // RESOURCE_EXHAUSTED if not even one thread can be had.
  static absl::StatusOr<std::unique_ptr<Pool>> Make(uint32_t threads, int wake_fd);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  // Waits for everything that was posted.
  ~Pool();

  // Runs `work` on a thread; then `id` can be reaped. These three are called by one thread.
  void Post(uint64_t id, std::function<void()> work);
  // True if `id` had not begun: it never will, and it won't be reaped. What it holds goes on a
  // thread, too: closing a file may take time.
  bool Withdraw(uint64_t id);
  bool Reap(uint64_t* id);
  // Runs `work`, and nobody hears of it. Any thread, the pool's own too.
  void PostUnheard(std::function<void()> work);

 private:
  struct Job {
    uint64_t id = 0;
    bool heard = true;
    std::function<void()> work;
  };
  Pool(uint32_t threads, int wake_fd) : threads_max_(threads), wake_fd_(wake_fd) {}
  // Its errno, or 0. What one thread less is left with is slower, and no error.
  int AddThread();
  void Add(Job job);
  void Run();

  const uint32_t threads_max_;
  const int wake_fd_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Job> waiting_;
  std::deque<uint64_t> done_;
  uint32_t idle_ = 0;
  bool ending_ = false;
  std::vector<pthread_t> threads_;  // none is added once it is ending
};

}  // namespace shunt::storage
