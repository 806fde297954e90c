#include "client/src/cuda/watcher.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/board/failure.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client::cuda {
namespace {

// Between looks whether a communicator has failed whose calls a graph repeats: so long may a replay
// hang after that.
constexpr int kLookMs = 20;
// Between looks at replays that nobody else serves.
constexpr int kServeMs = 1;
// For the daemon's answer that a captured call is forgotten.
constexpr std::chrono::seconds kReleaseWait(5);

}  // namespace

Watcher::Watcher(LeaseConnection* lease, std::shared_ptr<Gates> gates, UniqueFd wake)
    : lease_(lease), gates_(std::move(gates)), wake_(std::move(wake)) {}

absl::StatusOr<std::shared_ptr<Watcher>> Watcher::Start(LeaseConnection* lease,
                                                        std::shared_ptr<Gates> gates) {
  SHUNT_ASSIGN_OR_RETURN(UniqueFd wake, MakeEventFd());
  std::shared_ptr<Watcher> watcher(new Watcher(lease, std::move(gates), std::move(wake)));
  // The program's signals are not this thread's.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([watcher] { watcher->Run(); });
  ::pthread_setname_np(thread.native_handle(), "shunt-watch");
  thread.detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return watcher;
}

void Watcher::Add(std::shared_ptr<Watched> communicator) {
  std::lock_guard lock(mutex_);
  communicators_.push_back(std::move(communicator));
}

void Watcher::Left(const std::shared_ptr<Watched>& communicator) {
  std::lock_guard lock(mutex_);
  communicator->left = true;
  communicator->board = board::Board();
  std::erase(communicators_, communicator);
  SignalEventFd(wake_.get());
}

void Watcher::Nudge() { SignalEventFd(wake_.get()); }

void* Watcher::AddCaptured(std::shared_ptr<Watched> communicator, uint64_t sequence,
                           const Gates::Gate& gate) {
  std::lock_guard lock(mutex_);
  captured_.push_back(
      std::make_unique<Captured>(Captured{this, std::move(communicator), sequence, gate}));
  SignalEventFd(wake_.get());
  return captured_.back().get();
}

void Watcher::GraphDestroyed(void* captured) {
  Watcher& w = *static_cast<Captured*>(captured)->watcher;
  // Once the lock is free, the thread may end and the watcher be gone.
  std::lock_guard lock(w.mutex_);
  const auto at = std::find_if(w.captured_.begin(), w.captured_.end(),
                               [captured](const auto& c) { return c.get() == captured; });
  if (at == w.captured_.end()) return;
  w.destroyed_.push_back(std::move(*at));
  w.captured_.erase(at);
  SignalEventFd(w.wake_.get());
}

void Watcher::BeginStop() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
}

void Watcher::Stop() {
  gates_->ReleaseAll();
  std::unique_lock lock(mutex_);
  stopping_ = stop_ = true;
  SignalEventFd(wake_.get());
  changed_.wait(lock, [this] { return parked_; });
}

int Watcher::Look() {
  bool serves = false;
  for (const auto& c : captured_) {
    const bool dead =
        gone_ || stop_ || c->communicator->left || board::HasFailed(c->communicator->board);
    if (!dead) continue;
    Gates::ReleaseTurn(c->gate);
    serves = true;
  }
  return serves ? kServeMs : captured_.empty() ? -1 : kLookMs;
}

void Watcher::DaemonGone() {
  gates_->ReleaseAll();
  std::lock_guard lock(mutex_);
  gone_ = true;
  for (const auto& c : communicators_) {
    board::RecordFailure(c->board, board::FailureReason::kDaemonGone, -1,
                         absl::StrCat("communicator ", board::NameText(c->board),
                                      ": the daemon is gone; start shuntd and open a new session"));
  }
}

void Watcher::GiveBack(const Captured& captured) {
  const auto reply = lease_->Call(ReleaseCapture{captured.communicator->id, captured.sequence},
                                  DeadlineAfterNs(kReleaseWait));
  // Unless it has answered, the worker may still write there.
  if (reply.ok() || absl::IsNotFound(reply.status())) gates_->GiveRepeating(captured.gate);
}

void Watcher::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::vector<std::unique_ptr<Captured>> destroyed;
    destroyed.swap(destroyed_);
    const int timeout_ms = Look();
    if (stop_) {
      parked_ = true;
      changed_.notify_all();
      if (captured_.empty()) return;
    }
    const bool watches = !gone_ && !stopping_;
    lock.unlock();
    for (const auto& captured : destroyed) {
      if (watches) {
        GiveBack(*captured);
      } else {
        gates_->GiveRepeating(captured->gate);
      }
    }
    // The lease may be gone when it is not watched.
    pollfd polls[] = {{wake_.get(), POLLIN, 0}, {watches ? lease_->fd() : -1, POLLRDHUP, 0}};
    (void)::poll(polls, 2, destroyed.empty() ? timeout_ms : 0);
    DrainEventFd(wake_.get());
    if (polls[1].revents != 0) {
      lock.lock();
      const bool news = !stopping_;
      lock.unlock();
      if (news) DaemonGone();
    }
    lock.lock();
  }
}

}  // namespace shunt::client::cuda
