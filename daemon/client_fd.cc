#include "daemon/client_fd.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>

namespace shunt::daemon {
namespace {

constexpr size_t kWaitingMax = 256;  // of one user
constexpr auto kEndMax = std::chrono::milliseconds(200);

}  // namespace

void FdCloser::Close(uint32_t user, UniqueFd fd) {
  const std::lock_guard lock(state_->mutex);
  const auto [place, no_thread] = state_->waiting.try_emplace(user);
  place->second.push_back(fd.Release());
  if (!no_thread) return;
  auto job = std::make_unique<Job>(Job{state_, user});
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, &Run, job.get()) == 0) {
    ::pthread_detach(thread);
    static_cast<void>(job.release());
    return;
  }
  // No thread is to be had: better to wait here than to keep it for ever.
  ::close(place->second.front());
  state_->waiting.erase(place);
}

bool FdCloser::Full(uint32_t user) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->waiting.find(user);
  return found != state_->waiting.end() && found->second.size() >= kWaitingMax;
}

void* FdCloser::Run(void* arg) {
  const std::unique_ptr<Job> job(static_cast<Job*>(arg));
  ::pthread_setname_np(::pthread_self(), "shunt-close");
  State& state = *job->state;
  std::unique_lock lock(state.mutex);
  for (;;) {
    std::deque<int>& waiting = state.waiting[job->user];
    if (waiting.empty()) break;
    const int fd = waiting.front();
    waiting.pop_front();
    lock.unlock();
    ::close(fd);
    lock.lock();
  }
  state.waiting.erase(job->user);
  state.idle.notify_all();
  return nullptr;
}

FdCloser::~FdCloser() {
  std::unique_lock lock(state_->mutex);
  state_->idle.wait_for(lock, kEndMax, [this] { return state_->waiting.empty(); });
}

}  // namespace shunt::daemon
