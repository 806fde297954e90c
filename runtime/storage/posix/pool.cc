#include "runtime/storage/posix/pool.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "runtime/core/check.h"
#include "runtime/core/fd.h"

namespace shunt::storage {

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  added_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::Post(uint64_t id, std::function<void()> work) {
  Add({.id = id, .heard = true, .work = std::move(work)});
}

void Pool::PostUnheard(std::function<void()> work) {
  Add({.id = 0, .heard = false, .work = std::move(work)});
}

void Pool::Add(Job job) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(job));
  added_.notify_one();
  if (waiting_.size() <= idle_ || threads_.size() >= threads_max_ || ending_) return;
  // The thread inherits the mask. A write beyond RLIMIT_FSIZE is then an error and no signal.
  sigset_t all, before;
  ::sigfillset(&all);
  SHUNT_CHECK(::pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
  threads_.emplace_back([this] { Run(); });
  SHUNT_CHECK(::pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
}

void Pool::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    added_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    --idle_;
    if (waiting_.empty()) return;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    job.work();
    job.work = nullptr;  // what it holds goes before anybody hears
    lock.lock();
    if (!job.heard) continue;
    done_.push_back(job.id);
    SignalEventFd(wake_fd_);
  }
}

bool Pool::Withdraw(uint64_t id) {
  Job withdrawn;  // goes after the lock: what it holds may post
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [id](const Job& job) { return job.heard && job.id == id; });
  if (found == waiting_.end()) return false;
  withdrawn = std::move(*found);
  waiting_.erase(found);
  return true;
}

bool Pool::Reap(uint64_t* id) {
  const std::lock_guard lock(mutex_);
  if (done_.empty()) return false;
  *id = done_.front();
  done_.pop_front();
  return true;
}

}  // namespace shunt::storage
