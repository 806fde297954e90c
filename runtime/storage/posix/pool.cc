#include "runtime/storage/posix/pool.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/fd.h"
#include "runtime/core/status.h"

namespace shunt::storage {

absl::StatusOr<std::unique_ptr<Pool>> Pool::Make(uint32_t threads, int wake_fd) {
  std::unique_ptr<Pool> pool(new Pool(threads, wake_fd));
  if (const int err = pool->AddThread(); err != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(ErrnoStatus(err, "pthread_create").message(),
                                                     ", expected a thread for files at least"));
  }
  return pool;
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  added_.notify_all();
  for (const pthread_t thread : threads_) ::pthread_join(thread, nullptr);
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
  AddThread();  // without it the others do the work
}

// By pthread_create, because std::thread throws where there is no thread to be had.
int Pool::AddThread() {
  sigset_t all;
  ::sigfillset(&all);
  pthread_attr_t attributes;
  SHUNT_CHECK(::pthread_attr_init(&attributes) == 0);
  SHUNT_CHECK(::pthread_attr_setsigmask_np(&attributes, &all) == 0);
  const auto run = [](void* self) -> void* {
    static_cast<Pool*>(self)->Run();
    return nullptr;
  };
  pthread_t thread{};
  const int err = ::pthread_create(&thread, &attributes, run, this);
  ::pthread_attr_destroy(&attributes);
  if (err == 0) threads_.push_back(thread);
  return err;
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
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [id](const Job& job) { return job.heard && job.id == id; });
  if (found == waiting_.end()) return false;
  found->heard = false;
  found->work = [held = std::move(found->work)] {};
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
