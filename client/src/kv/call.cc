#include "client/src/kv/call.h"

#include <chrono>
#include <utility>

#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client::kv {

bool Call::Poll() {
  std::lock_guard lock(mutex_);
  return ended_;
}

bool Call::Wait(int64_t deadline_ns) {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return ended_; };
  if (deadline_ns == kNeverNs) {
    ended_changed_.wait(lock, ended);
    return true;
  }
  // The steady clock is CLOCK_MONOTONIC.
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline_ns)};
  return ended_changed_.wait_until(lock, until, ended);
}

absl::Status Call::Outcome() {
  std::lock_guard lock(mutex_);
  return outcome_;
}

std::vector<BlockResult> Call::Results() {
  std::lock_guard lock(mutex_);
  return results_;
}

absl::StatusOr<int> Call::EventFd() {
  std::lock_guard lock(mutex_);
  if (!event_.valid()) {
    SHUNT_ASSIGN_OR_RETURN(event_, MakeEventFd());
    if (ended_) SignalEventFd(event_.get());
  }
  return event_.get();
}

void Call::Set(size_t block, const BlockResult& result) {
  std::lock_guard lock(mutex_);
  results_[block] = result;
}

void Call::Fail(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (outcome_.ok()) outcome_ = status;
}

void Call::End() {
  std::lock_guard lock(mutex_);
  ended_ = true;
  if (event_.valid()) SignalEventFd(event_.get());
  ended_changed_.notify_all();
}

}  // namespace shunt::client::kv
