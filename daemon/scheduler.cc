#include "daemon/scheduler.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "daemon/log.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr uint64_t kWake = 0;  // session ids start at 1
constexpr uint64_t kSource = ~0ull;
// Entries taken from one ring before the others have their turn.
constexpr int kBatch = 64;
// Operations that Front serves before it looks at rings and source again.
constexpr int kServedBetweenPolls = 16;

thread_local bool this_thread_polls = false;
thread_local bool this_thread_is_front = false;

}  // namespace

absl::Status Scheduler::Start(Options options, OnSubmission on_submission, OnBroken on_broken) {
  options_ = std::move(options);
  on_submission_ = std::move(on_submission);
  on_broken_ = std::move(on_broken);
  epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return ErrnoStatus(errno, "creating an epoll descriptor");
  SHUNT_ASSIGN_OR_RETURN(wake_, MakeEventFd());
  SHUNT_RETURN_IF_ERROR(Watch(wake_.get(), kWake));
  if (has_source()) SHUNT_RETURN_IF_ERROR(Watch(options_.source.fd, kSource));
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this, i] { Work(i); });
  if (has_source()) threads_.emplace_back([this] { Front(); });
  return absl::OkStatus();
}

absl::Status Scheduler::Watch(int fd, uint64_t as) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = as;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "watching the scheduler's descriptors");
}

void Scheduler::Nudge() {
  std::lock_guard lock(mutex_);
  nudged_ = true;
  if (poller_sleeps_) SignalEventFd(wake_.get());
}

void Scheduler::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    idle_cv_.notify_all();
    if (wake_.valid()) SignalEventFd(wake_.get());
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  std::deque<Task> dropped, dropped_long;
  std::lock_guard lock(mutex_);
  dropped.swap(tasks_);
  dropped_long.swap(long_);
}

absl::Status Scheduler::Add(std::shared_ptr<Session> session) {
  std::lock_guard lock(rings_mutex_);
  // Edge-triggered: every write of the doorbell is an edge, so it need not be read.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = session->id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, session->doorbell.get(), &event) != 0) {
    return ErrnoStatus(errno, "watching a doorbell");
  }
  const uint64_t id = session->id;
  rings_.emplace(id, Ring{std::move(session)});
  return absl::OkStatus();
}

void Scheduler::Remove(const Session& session) {
  Ring gone;
  std::lock_guard lock(rings_mutex_);
  const auto it = rings_.find(session.id);
  if (it == rings_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session.doorbell.get(), nullptr);
  gone = std::move(it->second);
  rings_.erase(it);
  std::erase(hot_, session.id);
}

void Scheduler::Drain(const std::shared_ptr<Session>& session) {
  std::lock_guard lock(rings_mutex_);
  const auto it = rings_.find(session->id);
  // At most what fits: a client that keeps pushing does not keep us here.
  if (it == rings_.end()) return;
  for (uint32_t taken = 0; taken < session->ring.entries() && Take(it->second); taken += kBatch) {
  }
}

void Scheduler::Ready(std::shared_ptr<Communicator> communicator, uint32_t channel) {
  std::lock_guard lock(mutex_);
  tasks_.push_back({std::move(communicator), channel});
  if (this_thread_polls) return;  // looks at tasks_ next
  if (idle_ > 0 && !has_source()) {
    idle_cv_.notify_one();
  } else if (poller_sleeps_) {
    SignalEventFd(wake_.get());
  }
}

bool Scheduler::OthersWait() {
  // What comes next may be long.
  if (this_thread_is_front) return true;
  std::lock_guard lock(mutex_);
  return !(has_source() ? long_ : tasks_).empty();
}

bool Scheduler::Take(Ring& ring) {
  if (ring.broken) return false;
  bool any = false;
  for (int i = 0; i < kBatch; ++i) {
    ring::Submission submission;
    const absl::StatusOr<bool> popped = ring.session->ring.Pop(&submission);
    if (!popped.ok()) {
      ring.broken = true;
      on_broken_(ring.session, popped.status());
      return false;
    }
    if (!*popped) break;
    any = true;
    on_submission_(ring.session, submission);
  }
  return any;
}

void Scheduler::Drive() {
  if (options_.source.drive()) source_moved_ns_ = NowNs();
}

void Scheduler::Poll() {
  const bool front = this_thread_is_front;
  int64_t now = NowNs();
  if (front) {
    bool nudged;
    {
      std::lock_guard lock(mutex_);
      nudged = std::exchange(nudged_, false);
    }
    if (nudged) Drive();
  }
  const bool may_spin = options_.spin_ns > 0 && (!options_.may_spin || options_.may_spin());
  const bool source_hot = front && may_spin && now - source_moved_ns_ < options_.spin_ns;
  bool sleep = !source_hot;
  if (sleep) {
    std::lock_guard lock(rings_mutex_);
    sleep = hot_.empty();
  }
  const int64_t next_ns = front ? options_.source.next_ns() : kNeverNs;
  if (sleep) {
    std::lock_guard lock(mutex_);
    if (!tasks_.empty() || stop_ || (front && nudged_)) {
      // Front looks at what else there is, however much it has to do.
      if (!front) return;
      sleep = false;
    }
    poller_sleeps_ = sleep;
  }
  int timeout_ms = 0;
  if (sleep) {
    timeout_ms = -1;
    if (next_ns != kNeverNs) {
      timeout_ms = static_cast<int>(std::max<int64_t>(0, next_ns - now) / 1'000'000 + 1);
    }
  }
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
  SHUNT_CHECK(count >= 0 || errno == EINTR);
  if (sleep) {
    std::lock_guard lock(mutex_);
    poller_sleeps_ = false;
  }
  if (front) {
    const bool ready = std::any_of(events, events + std::max(count, 0),
                                   [](const epoll_event& e) { return e.data.u64 == kSource; });
    if (ready || source_hot || NowNs() >= next_ns) Drive();
  }
  std::lock_guard lock(rings_mutex_);
  for (int i = 0; i < count; ++i) {
    const uint64_t id = events[i].data.u64;  // a copy: the struct is packed
    if (id == kSource) continue;
    if (id == kWake) {
      DrainEventFd(wake_.get());
      continue;
    }
    const auto it = rings_.find(id);
    if (it == rings_.end() || it->second.hot || it->second.broken) continue;
    it->second.hot = true;
    it->second.session->ring.Awake();
    hot_.push_back(it->first);
  }
  if (hot_.empty()) return;
  now = NowNs();
  std::erase_if(hot_, [&](uint64_t id) {
    Ring& ring = rings_.at(id);
    if (Take(ring)) {
      ring.last_work_ns = now;
      if (may_spin) return false;
    } else if (may_spin && now - ring.last_work_ns < options_.spin_ns) {
      return false;
    }
    // Cold: from now on the doorbell tells.
    if (!ring.broken && ring.session->ring.MayNotSleep()) {
      ring.session->ring.Awake();
      return false;
    }
    ring.hot = false;
    return true;
  });
}

void Scheduler::Work(int index) {
  ::pthread_setname_np(::pthread_self(), "shunt-worker");
  if (!options_.cpus.empty()) {
    const absl::Status bound = topology::BindThread(options_.cpus[index % options_.cpus.size()]);
    if (!bound.ok()) LogWarn("worker not bound", {{"worker", index}, {"error", bound.ToString()}});
  }
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::deque<Task>& tasks = has_source() ? long_ : tasks_;
    if (!tasks.empty()) {
      Task task = std::move(tasks.front());
      tasks.pop_front();
      bool more = !tasks.empty();
      if (idle_ > 0) {
        if (!more && !polling_) {
          lock.unlock();
          more = task.communicator->LooksLong(task.channel);
          lock.lock();
        }
        if (more) idle_cv_.notify_one();
      }
      lock.unlock();
      task.communicator->RunChannel(task.channel);
      task.communicator.reset();  // may be the last reference: not under the lock
      lock.lock();
      continue;
    }
    if (!polling_ && !has_source()) {
      polling_ = true;
      lock.unlock();
      this_thread_polls = true;
      Poll();
      this_thread_polls = false;
      lock.lock();
      polling_ = false;
      continue;
    }
    ++idle_;
    idle_cv_.wait(lock);
    --idle_;
  }
  // Whoever polls next must see it too.
  idle_cv_.notify_all();
  SignalEventFd(wake_.get());
}

void Scheduler::Front() {
  ::pthread_setname_np(::pthread_self(), "shunt-nodes");
  this_thread_polls = this_thread_is_front = true;
  topology::CpuList cpus;
  for (const topology::CpuList& of_worker : options_.cpus) {
    cpus.insert(cpus.end(), of_worker.begin(), of_worker.end());
  }
  if (!cpus.empty()) {
    const absl::Status bound = topology::BindThread(cpus);
    if (!bound.ok()) LogWarn("poller not bound", {{"error", bound.ToString()}});
  }
  std::unique_lock lock(mutex_);
  while (!stop_) {
    for (int i = 0; i < kServedBetweenPolls && !tasks_.empty(); ++i) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      const bool leave = task.communicator->LooksLong(task.channel);
      if (!leave) task.communicator->RunChannel(task.channel);
      lock.lock();
      if (leave) {
        long_.push_back(std::move(task));
        if (idle_ > 0) idle_cv_.notify_one();
        continue;
      }
      lock.unlock();
      task.communicator.reset();
      lock.lock();
    }
    lock.unlock();
    Poll();
    lock.lock();
  }
  idle_cv_.notify_all();
}

}  // namespace shunt::daemon
