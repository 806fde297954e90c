#include "client/src/notifications.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "client/src/session.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client {
namespace {

// One request waits so long at most; then another one does.
constexpr int64_t kSliceMs = 30'000;
// The answer has to get here.
constexpr std::chrono::seconds kGrace(60);

// The clock's value is added to: a day is as good as forever.
std::chrono::steady_clock::time_point TimePoint(int64_t deadline_ns) {
  const int64_t ns = std::min(deadline_ns, NowNs() + int64_t{86'400} * 1'000'000'000);
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

}  // namespace

absl::Status Notifications::Send(const std::string& agent, const std::string& payload) {
  return lease_->Call(Notify{agent, payload}, RequestDeadlineNs()).status();
}

absl::StatusOr<NotificationsTaken> Notifications::Ask(uint32_t max, int64_t wait_ms) {
  SHUNT_ASSIGN_OR_RETURN(
      LeaseConnection::Reply reply,
      lease_->Call(TakeNotifications{max, static_cast<uint32_t>(wait_ms)},
                   DeadlineAfterNs(std::chrono::milliseconds(wait_ms) + kGrace)));
  auto* taken = std::get_if<NotificationsTaken>(&reply.message.response);
  if (taken == nullptr) {
    return absl::InternalError("shuntd's reply to TakeNotifications has no notifications");
  }
  return std::move(*taken);
}

absl::StatusOr<NotificationsTaken> Notifications::Take(uint32_t max, int64_t deadline_ns) {
  std::unique_lock lock(mutex_);
  // Before the question: what comes after it makes the descriptor readable again.
  if (event_.valid()) DrainEventFd(event_.get());
  while (true) {
    const int64_t left_ns = deadline_ns - NowNs();
    if (left_ns > 0 && asking_) {
      asked_.wait_until(lock, TimePoint(deadline_ns));
      continue;
    }
    const bool waits = left_ns > 0;
    // Rounded up: what is asked too early is asked again.
    const int64_t wait_ms = waits ? std::min((left_ns - 1) / 1'000'000 + 1, kSliceMs) : 0;
    asking_ = asking_ || waits;
    lock.unlock();
    absl::StatusOr<NotificationsTaken> taken = Ask(max, wait_ms);
    lock.lock();
    if (waits) {
      asking_ = false;
      asked_.notify_all();
    }
    if (!taken.ok()) return taken;
    if (taken->more && event_.valid()) SignalEventFd(event_.get());
    if (!taken->notifications.empty() || !waits) return taken;
  }
}

absl::StatusOr<int> Notifications::EventFd() {
  std::lock_guard lock(mutex_);
  if (event_.valid()) return event_.get();
  SHUNT_ASSIGN_OR_RETURN(UniqueFd event, MakeEventFd());
  const int fds[] = {event.get()};
  SHUNT_RETURN_IF_ERROR(lease_->Call(WatchNotifications{}, RequestDeadlineNs(), fds).status());
  // For what came before. If there was nothing, somebody looks once in vain.
  SignalEventFd(event.get());
  event_ = std::move(event);
  return event_.get();
}

}  // namespace shunt::client
