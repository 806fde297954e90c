#include "daemon/gpu/gpu_completions.h"

#include <poll.h>
#include <pthread.h>

#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

// While cancels wait for room in a ring, which nobody tells of.
constexpr int kOwingMs = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<GpuCompletions>> GpuCompletions::Start(int64_t spin_ns) {
  std::unique_ptr<GpuCompletions> completions(new GpuCompletions(spin_ns));
  SHUNT_ASSIGN_OR_RETURN(completions->wake_, MakeEventFd());
  completions->thread_ = std::thread([self = completions.get()] {
    ::pthread_setname_np(::pthread_self(), "shunt-gpu-done");
    self->Run();
  });
  return completions;
}

GpuCompletions::~GpuCompletions() { Stop(); }

void GpuCompletions::Add(std::shared_ptr<WorkerLink> link) {
  const std::lock_guard lock(mutex_);
  links_.push_back(std::move(link));
  news_.store(true);
  SignalEventFd(wake_.get());
}

void GpuCompletions::Retire(std::shared_ptr<WorkerLink> link, absl::Status why) {
  const std::lock_guard lock(mutex_);
  std::erase(links_, link);
  retired_.emplace_back(std::move(link), std::move(why));
  news_.store(true);
  SignalEventFd(wake_.get());
}

void GpuCompletions::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    news_.store(true);
    SignalEventFd(wake_.get());
  }
  if (thread_.joinable()) thread_.join();
}

bool GpuCompletions::TakeNews(Links* links) {
  if (!news_.load()) return true;
  decltype(retired_) retired;
  bool stop;
  {
    const std::lock_guard lock(mutex_);
    news_.store(false);
    *links = links_;
    retired.swap(retired_);
    stop = stop_;
  }
  for (const auto& [link, why] : retired) link->End(why);
  return !stop;
}

void GpuCompletions::Run() {
  Links links;
  int64_t worked_ns = NowNs();
  while (TakeNews(&links)) {
    bool worked = false;
    for (const auto& link : links) worked |= link->Drain();
    const int64_t now = NowNs();
    if (worked) {
      worked_ns = now;
    } else if (now - worked_ns >= spin_ns_) {
      Sleep(links);
    }
  }
}

void GpuCompletions::Sleep(const Links& links) {
  bool may_not = false, owes = false;
  std::vector<pollfd> ready = {{wake_.get(), POLLIN, 0}};
  for (const auto& link : links) {
    may_not |= link->MayNotSleep();
    owes |= link->owes_cancels();
    ready.push_back({link->shuntd_doorbell(), POLLIN, 0});
  }
  if (!may_not) {
    ::poll(ready.data(), ready.size(), owes ? kOwingMs : -1);
    for (const pollfd& p : ready) {
      if (p.revents != 0) DrainEventFd(p.fd);
    }
  }
  for (const auto& link : links) link->Awake();
}

}  // namespace shunt::daemon
