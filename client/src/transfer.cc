// One transfer, from its post to its outcome.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/transfers.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client {
namespace {

// A look for the daemon is a system call: not at every poll.
constexpr uint32_t kPollsPerDaemonCheck = 64;
// The daemon takes a submission within microseconds; a stopped one does not answer at all.
constexpr std::chrono::seconds kTakenWithin(2);

absl::Status DaemonGone() {
  return absl::UnavailableError(
      "shuntd is gone; the session is over, and what its transfers have moved is not known. Once "
      "shuntd runs again, open a new one");
}

}  // namespace

Transfer::Transfer(std::shared_ptr<Session> session, uint64_t id, const Posting& posting)
    : session_(std::move(session)),
      id_(id),
      direction_(posting.direction),
      local_(posting.local.list),
      remote_(posting.remote.list) {}

std::string Transfer::Describe() const {
  return absl::StrCat(direction_ == 0 ? "pull #" : "push #", id_);
}

bool Transfer::End(int32_t code) {
  int32_t running = kRunning;
  return code_.compare_exchange_strong(running, code, std::memory_order_acq_rel);
}

void Transfer::Abandon() {
  session_->transfers().ForgetAll();
  std::lock_guard lock(mutex_);
  if (End(static_cast<int32_t>(absl::StatusCode::kUnavailable))) outcome_ = DaemonGone();
  if (event_.valid()) SignalEventFd(event_.get());
}

bool Transfer::Poll() {
  if (!ended()) session_->ring().Collect();
  if (!ended() && polls_.fetch_add(1, std::memory_order_relaxed) % kPollsPerDaemonCheck == 0 &&
      session_->lease().Gone()) {
    // What had ended before it went has ended well.
    return Wait(NowNs());
  }
  if (!ended()) return false;
  std::lock_guard lock(mutex_);
  if (event_.valid()) SignalEventFd(event_.get());  // the daemon may do so later
  return true;
}

bool Transfer::Wait(int64_t deadline_ns) {
  if (session_->ring().Wait([this] { return ended(); }, deadline_ns)) return true;
  if (!session_->ring().gone() && !session_->lease().Gone()) return false;
  session_->ring().Collect();
  Abandon();
  return true;
}

absl::Status Transfer::Outcome() {
  const auto code = static_cast<absl::StatusCode>(code_.load(std::memory_order_acquire));
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  if (!outcome_) {
    const auto reply = session_->lease().Call(WaitTransfer{id_}, RequestDeadlineNs());
    if (reply.status().code() == code) {
      outcome_ = reply.status();
    } else {
      outcome_ = absl::Status(code, absl::StrCat(Describe(), " failed; shuntd has no words for it",
                                                 reply.ok() ? "" : ": ", reply.status().message()));
    }
  }
  return *outcome_;
}

absl::StatusOr<TransferReport> Transfer::Report() {
  if (!Poll()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(), " has not ended, expected an end before a report is asked for"));
  }
  SHUNT_RETURN_IF_ERROR(Outcome());
  std::lock_guard lock(mutex_);
  if (!report_) {
    SHUNT_ASSIGN_OR_RETURN(const LeaseConnection::Reply reply,
                           session_->lease().Call(WaitTransfer{id_}, RequestDeadlineNs()));
    const auto* report = std::get_if<TransferReport>(&reply.message.response);
    if (report == nullptr) {
      return absl::InternalError("shuntd's reply to WaitTransfer has no report");
    }
    report_ = *report;
  }
  return *report_;
}

absl::Status Transfer::Tell(const LeaseRequest& request, std::span<const int> fds) {
  const int64_t give_up_ns = DeadlineAfterNs(kTakenWithin);
  while (true) {
    const auto reply = session_->lease().Call(request, RequestDeadlineNs(), fds);
    if (reply.ok() || !absl::IsNotFound(reply.status())) return reply.status();
    session_->ring().Collect();
    if (ended()) return absl::OkStatus();
    if (NowNs() >= give_up_ns) return reply.status();
    ::sched_yield();
  }
}

absl::StatusOr<int> Transfer::EventFd() {
  Poll();
  std::lock_guard lock(mutex_);
  if (event_.valid()) return event_.get();
  SHUNT_ASSIGN_OR_RETURN(UniqueFd event, MakeEventFd());
  if (!ended()) {
    const int fds[] = {event.get()};
    SHUNT_RETURN_IF_ERROR(Tell(WatchTransfer{id_}, fds));
    session_->ring().Collect();
  }
  // It may have ended before the daemon heard of the watch.
  if (ended()) SignalEventFd(event.get());
  event_ = std::move(event);
  return event_.get();
}

absl::Status Transfer::Cancel() {
  if (Poll()) return absl::OkStatus();
  return Tell(CancelTransfer{id_}, {});
}

}  // namespace shunt::client
