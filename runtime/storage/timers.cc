#include "runtime/storage/timers.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/core/check.h"
#include "runtime/core/status.h"

namespace shunt::storage {

absl::StatusOr<Timers> Timers::Make() {
  UniqueFd fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "timerfd_create");
  return Timers(std::move(fd));
}

void Timers::Set(uint64_t id, int64_t at_ns) {
  const auto found = at_.find(id);
  if (found != at_.end()) {
    order_.erase({found->second, id});
    at_.erase(found);
  }
  if (at_ns == kNeverNs) return;
  at_.emplace(id, at_ns);
  order_.emplace(at_ns, id);
}

bool Timers::PopDue(int64_t now_ns, uint64_t* id) {
  if (order_.empty() || order_.begin()->first > now_ns) return false;
  *id = order_.begin()->second;
  at_.erase(*id);
  order_.erase(order_.begin());
  return true;
}

void Timers::Arm() {
  const int64_t next_ns = order_.empty() ? kNeverNs : order_.begin()->first;
  if (next_ns == armed_ns_) return;
  itimerspec when{};
  if (next_ns != kNeverNs) {
    const int64_t at_ns = std::max<int64_t>(next_ns, 1);  // 0 would disarm it
    when.it_value.tv_sec = at_ns / 1'000'000'000;
    when.it_value.tv_nsec = at_ns % 1'000'000'000;
  }
  SHUNT_CHECK(::timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &when, nullptr) == 0);
  armed_ns_ = next_ns;
}

}  // namespace shunt::storage
