#include "daemon/drain.h"

#include <algorithm>

#include "daemon/log.h"
#include "runtime/core/clock.h"

namespace shunt::daemon {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr char kWhy[] = "shuntd is drained";

}  // namespace

std::string_view Drain::Name(State state) {
  switch (state) {
    case State::kServing:
      return "serving";
    case State::kDraining:
      return "draining";
    case State::kDrained:
      return "drained";
  }
  return "serving";
}

void Drain::Begin(std::chrono::nanoseconds grace) {
  uint64_t turn = 0;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kDrained) return;
    state_ = State::kDraining;
    deadline_ns_ = DeadlineAfterNs(grace);
    turn = ++turn_;
  }
  LogInfo("draining",
          {{"grace_ms", std::chrono::duration_cast<std::chrono::milliseconds>(grace).count()}});
  communicators_->WithdrawAll("shuntd is draining");
  loop_->Post([this, turn] { Look(turn); });
}

void Drain::Undo() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kServing) return;
    state_ = State::kServing;
    ++turn_;
  }
  LogInfo("draining was taken back");
}

void Drain::Look(uint64_t turn) {
  const bool busy = transfers_->in_flight() != 0 || BusyCommunicators() != 0;
  {
    const std::lock_guard lock(mutex_);
    if (turn != turn_ || state_ != State::kDraining) return;
    if (busy && NowNs() < deadline_ns_) {
      loop_->At(std::min(deadline_ns_, DeadlineAfterNs(kLook)), [this, turn] { Look(turn); });
      return;
    }
    state_ = State::kDrained;
    cut_off_ = busy;
  }
  // Also those that are idle: the calls of their ranks need no daemon on one node.
  communicators_->FailAll(kWhy);
  transfers_->CancelAll(absl::UnavailableError(kWhy));
  LogInfo("drained", {{"cut_off", busy}});
}

size_t Drain::BusyCommunicators() const {
  const auto all = communicators_->List();
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const auto& communicator) {
    return communicator->pending() != 0 || communicator->LooksBusy();
  }));
}

Drain::State Drain::view_state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Drain::View Drain::view() const {
  View view;
  view.communicators = BusyCommunicators();
  view.transfers = transfers_->in_flight();
  const std::lock_guard lock(mutex_);
  view.state = state_;
  view.cut_off = state_ == State::kDrained && cut_off_;
  if (state_ == State::kDraining) {
    view.seconds_left = 1e-9 * static_cast<double>(std::max<int64_t>(0, deadline_ns_ - NowNs()));
  }
  return view;
}

}  // namespace shunt::daemon
