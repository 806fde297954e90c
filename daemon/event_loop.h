// One thread that waits for descriptors, timers and closures of other threads. It wakes for nothing
// else: with nothing due it uses no CPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/clock.h"
#include "runtime/core/fd.h"

namespace shunt::daemon {

// Every method may be called from any thread; handlers run on the thread that is in Run, one at a
// time.
class EventLoop {
 public:
  using WatchId = uint64_t;
  using TimerId = uint64_t;

  static absl::StatusOr<std::unique_ptr<EventLoop>> Make();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;

  // Until Stop. What was posted before Stop has then run.
  void Run();
  void Stop();

  void Post(std::function<void()> closure);

  // Calls `handler` with epoll's event bits. `fd` stays the caller's and must outlive the watch; it
  // may be watched once only.
  absl::StatusOr<WatchId> Watch(int fd, uint32_t events, std::function<void(uint32_t)> handler);
  absl::Status Change(WatchId id, uint32_t events);
  // No further call of the handler is begun. Called on another thread, one may be running.
  void Unwatch(WatchId id);

  // Calls `handler` once, soon after `deadline_ns` (CLOCK_MONOTONIC). Never for kNeverNs: gives 0.
  TimerId At(int64_t deadline_ns, std::function<void()> handler);
  // False if it has run, is running or never was. 0 is allowed.
  bool Cancel(TimerId id);

 private:
  struct Watched {
    int fd;
    std::shared_ptr<std::function<void(uint32_t)>> handler;
  };

  EventLoop() = default;
  void Arm();  // mutex_ held
  void RunTimers();
  void RunPosted();

  UniqueFd epoll_;
  UniqueFd wake_;
  UniqueFd timer_;
  std::mutex mutex_;
  bool stop_ = false;
  uint64_t next_id_ = 16;  // below: our own descriptors
  std::unordered_map<WatchId, Watched> watched_;
  std::map<std::pair<int64_t, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, int64_t> timer_deadlines_;
  int64_t armed_ns_ = kNeverNs;
  std::vector<std::function<void()>> posted_;
};

}  // namespace shunt::daemon
