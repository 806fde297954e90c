#include "daemon/transfer/transfer.h"

#include <utility>

#include "runtime/core/clock.h"

namespace shunt::daemon {

const char* RouteName(Route route) {
  constexpr const char* kNames[kRoutes] = {"copy", "pull", "push", "read", "write", "gpu"};
  return kNames[static_cast<size_t>(route)];
}

bool Transfer::Step() {
  if (began_ns_.load(std::memory_order_relaxed) == 0) {
    int64_t never = 0;
    began_ns_.compare_exchange_strong(never, NowNs(), std::memory_order_relaxed);
  }
  const bool some = setup_.copier->Work(1) != 0;
  if (some) TellIfOver();
  return some;
}

void Transfer::Cancel(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_.ok()) cancelled_ = why;
  }
  if (!is_copy()) return setup_.cancel(why);
  // Chunks in the works end first; who ends the last of them finds out.
  if (setup_.copier->Cancel()) TellIfOver();
}

absl::Status Transfer::cancelled() {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void Transfer::GiveUp() {
  if (setup_.inbox != nullptr) setup_.inbox->GiveBack();
}

void Transfer::TellIfOver() {
  const p2p::Outcome outcome = setup_.copier->outcome();
  if (outcome == p2p::Outcome::kPending || told_.exchange(true)) return;
  absl::Status status;
  if (outcome == p2p::Outcome::kCancelled) {
    const std::lock_guard lock(mutex_);
    status = cancelled_;
  }
  Finish(status);
}

void Transfer::Finish(const absl::Status& outcome) {
  ended_ns_ = NowNs();
  outcome_ = outcome;
  // First of all: its owner may free them, and take other memory, as soon as it knows.
  setup_.uses.clear();
  // A copy that was cancelled may wait for a thread yet, with its ids: it pays until it is gone.
  if (!is_copy() || outcome_.ok()) setup_.charge.reset();
  if (setup_.inbox != nullptr) {
    if (outcome_.ok()) {
      setup_.inbox->Put(std::move(setup_.notification));
    } else {
      setup_.inbox->GiveBack();
    }
  }
  setup_.ended(*this);
}

TransferReport Transfer::report() const {
  const int64_t began = began_ns_.load(std::memory_order_relaxed);
  TransferReport report;
  report.route = setup_.route;
  report.outcome = outcome_;
  report.bytes = outcome_.ok() ? bytes() : 0;
  if (!is_copy()) {  // what it waited for, it waited for there too
    report.moved_ns = static_cast<uint64_t>(ended_ns_ - posted_ns_);
    return report;
  }
  report.waited_ns = static_cast<uint64_t>((began != 0 ? began : ended_ns_) - posted_ns_);
  report.moved_ns = began != 0 ? static_cast<uint64_t>(ended_ns_ - began) : 0;
  return report;
}

}  // namespace shunt::daemon
