// Counts calls that gRPC still holds, whose callbacks come on its threads: the event loop may go
// only when none is left.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "daemon/event_loop.h"

namespace shunt::cluster {

// Thread-safe.
class CallTracker {
 public:
  explicit CallTracker(daemon::EventLoop* loop) : loop_(loop) {}

  daemon::EventLoop* loop() const { return loop_; }

  void Begin() {
    std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  // `last` runs on the loop.
  void End(std::function<void()> last) {
    loop_->Post(std::move(last));
    std::lock_guard lock(mutex_);
    if (--in_flight_ == 0) idle_.notify_all();
  }
  // Blocks until every call has ended. Their owners have cancelled them. Not on the loop.
  void WaitIdle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return in_flight_ == 0; });
  }

 private:
  daemon::EventLoop* const loop_;
  std::mutex mutex_;
  std::condition_variable idle_;
  int in_flight_ = 0;
};

}  // namespace shunt::cluster
