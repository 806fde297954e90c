#include "daemon/client_fd.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>

namespace shunt::daemon {
namespace {

constexpr size_t kWaitingMax = 256;  // of one user
constexpr auto kEndMax = std::chrono::milliseconds(200);

}  // namespace

bool FdCloser::Detached(void* (*main)(void*), void* arg) {
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, main, arg) != 0) return false;
  ::pthread_detach(thread);
  return true;
}

void FdCloser::Close(uint32_t user, UniqueFd fd) {
  const std::lock_guard lock(state_->mutex);
  state_->users[user].waiting.push_back(fd.Release());
  // Also for those for whom there was none: closing here could hold up all that this thread serves.
  for (auto& [id, one] : state_->users) {
    if (one.has_thread) continue;
    auto job = std::make_unique<Job>(Job{state_, id});
    if (!start_(&Run, job.get())) return;
    static_cast<void>(job.release());
    one.has_thread = true;
  }
}

bool FdCloser::Full(uint32_t user) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->users.find(user);
  return found != state_->users.end() && found->second.waiting.size() >= kWaitingMax;
}

void* FdCloser::Run(void* arg) {
  const std::unique_ptr<Job> job(static_cast<Job*>(arg));
  ::pthread_setname_np(::pthread_self(), "shunt-close");
  State& state = *job->state;
  std::unique_lock lock(state.mutex);
  for (;;) {
    std::deque<int>& waiting = state.users[job->user].waiting;
    if (waiting.empty()) break;
    const int fd = waiting.front();
    waiting.pop_front();
    lock.unlock();
    ::close(fd);
    lock.lock();
  }
  state.users.erase(job->user);
  state.idle.notify_all();
  return nullptr;
}

FdCloser::~FdCloser() {
  std::unique_lock lock(state_->mutex);
  state_->idle.wait_for(lock, kEndMax, [this] { return state_->users.empty(); });
}

}  // namespace shunt::daemon
