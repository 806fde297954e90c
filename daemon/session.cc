#include "daemon/session.h"

#include "absl/strings/str_cat.h"
#include "daemon/log.h"

namespace shunt::daemon {

void Operation::Finish(const absl::Status& outcome) {
  std::unordered_map<uint64_t, Waiter> waiters;
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    done_ = true;
    outcome_ = outcome;
    waiters.swap(waiters_);
    uses.clear();
  }
  for (auto& [id, waiter] : waiters) waiter(outcome);
}

bool Operation::done() const {
  std::lock_guard lock(mutex_);
  return done_;
}

uint64_t Operation::Wait(Waiter waiter) {
  {
    std::lock_guard lock(mutex_);
    if (!done_) {
      waiters_.emplace(next_waiter_, std::move(waiter));
      return next_waiter_++;
    }
  }
  waiter(outcome_);  // never changes any more
  return 0;
}

bool Operation::CancelWait(uint64_t waiter) {
  std::lock_guard lock(mutex_);
  return waiters_.erase(waiter) != 0;
}

void Session::Complete(uint64_t ring_token, absl::StatusCode code) {
  std::lock_guard lock(complete_mutex_);
  if (!ring.valid() || ended.load(std::memory_order_acquire)) return;
  if (!ring.Complete(ring_token, static_cast<int32_t>(code))) {
    // Its own completions are lost, nobody else's; once is enough to say so.
    if (LogEnabled(LogLevel::kDebug))
      Log(LogLevel::kDebug, "completion ring overrun", {{"session", id}});
  }
}

void Session::RegionFreed() {
  std::lock_guard lock(complete_mutex_);
  if (ring.valid()) ring.RegionFreed();
}

absl::StatusOr<Membership> Session::FindMembership(uint64_t communicator_id) const {
  std::lock_guard lock(mutex);
  const auto it = memberships.find(communicator_id);
  if (it == memberships.end()) {
    return absl::NotFoundError(
        absl::StrCat("communicator ", communicator_id, ": this session is not a member of it"));
  }
  return it->second;
}

}  // namespace shunt::daemon
