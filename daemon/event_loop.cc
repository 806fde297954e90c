#include "daemon/event_loop.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/core/check.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr uint64_t kWake = 1;
constexpr uint64_t kTimer = 2;

absl::Status AddTo(int epoll, int fd, uint32_t events, uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    return ErrnoStatus(errno, "watching a descriptor");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Make() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  loop->epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll_.valid()) return ErrnoStatus(errno, "creating an epoll descriptor");
  loop->timer_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!loop->timer_.valid()) return ErrnoStatus(errno, "creating a timer descriptor");
  SHUNT_ASSIGN_OR_RETURN(loop->wake_, MakeEventFd());
  SHUNT_RETURN_IF_ERROR(AddTo(loop->epoll_.get(), loop->wake_.get(), EPOLLIN, kWake));
  SHUNT_RETURN_IF_ERROR(AddTo(loop->epoll_.get(), loop->timer_.get(), EPOLLIN, kTimer));
  return loop;
}

EventLoop::~EventLoop() = default;

void EventLoop::Stop() {
  std::lock_guard lock(mutex_);
  stop_ = true;
  SignalEventFd(wake_.get());
}

void EventLoop::Post(std::function<void()> closure) {
  std::lock_guard lock(mutex_);
  posted_.push_back(std::move(closure));
  if (posted_.size() == 1) SignalEventFd(wake_.get());
}

absl::StatusOr<EventLoop::WatchId> EventLoop::Watch(int fd, uint32_t events,
                                                    std::function<void(uint32_t)> handler) {
  std::lock_guard lock(mutex_);
  const WatchId id = next_id_++;
  SHUNT_RETURN_IF_ERROR(AddTo(epoll_.get(), fd, events, id));
  watched_.emplace(
      id, Watched{fd, std::make_shared<std::function<void(uint32_t)>>(std::move(handler))});
  return id;
}

absl::Status EventLoop::Change(WatchId id, uint32_t events) {
  std::lock_guard lock(mutex_);
  const auto it = watched_.find(id);
  if (it == watched_.end()) return absl::NotFoundError("no such watch");
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, it->second.fd, &event) != 0) {
    return ErrnoStatus(errno, "changing a watch");
  }
  return absl::OkStatus();
}

void EventLoop::Unwatch(WatchId id) {
  Watched gone;  // its handler may own much: destroyed after the lock
  std::lock_guard lock(mutex_);
  const auto it = watched_.find(id);
  if (it == watched_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second.fd, nullptr);
  gone = std::move(it->second);
  watched_.erase(it);
}

EventLoop::TimerId EventLoop::At(int64_t deadline_ns, std::function<void()> handler) {
  if (deadline_ns == kNeverNs) return 0;
  std::lock_guard lock(mutex_);
  const TimerId id = next_id_++;
  timers_.emplace(std::pair(deadline_ns, id), std::move(handler));
  timer_deadlines_.emplace(id, deadline_ns);
  Arm();
  return id;
}

bool EventLoop::Cancel(TimerId id) {
  std::function<void()> gone;
  std::lock_guard lock(mutex_);
  const auto it = timer_deadlines_.find(id);
  if (it == timer_deadlines_.end()) return false;
  const auto timer = timers_.find({it->second, id});
  gone = std::move(timer->second);
  timers_.erase(timer);
  timer_deadlines_.erase(it);
  // A timer that is armed too early would be a needless wake-up.
  Arm();
  return true;
}

void EventLoop::Arm() {
  const int64_t first = timers_.empty() ? kNeverNs : timers_.begin()->first.first;
  if (first == armed_ns_) return;
  armed_ns_ = first;
  itimerspec spec{};  // zero disarms
  if (first != kNeverNs) {
    const int64_t at = first > 0 ? first : 1;
    spec.it_value.tv_sec = at / 1'000'000'000;
    spec.it_value.tv_nsec = at % 1'000'000'000;
  }
  SHUNT_CHECK(::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr) == 0);
}

void EventLoop::RunTimers() {
  DrainEventFd(timer_.get());
  const int64_t now = NowNs();
  for (;;) {
    std::function<void()> handler;
    {
      std::lock_guard lock(mutex_);
      armed_ns_ = kNeverNs;  // it has fired
      if (timers_.empty() || timers_.begin()->first.first > now) {
        Arm();
        return;
      }
      handler = std::move(timers_.begin()->second);
      timer_deadlines_.erase(timers_.begin()->first.second);
      timers_.erase(timers_.begin());
    }
    handler();
  }
}

void EventLoop::RunPosted() {
  DrainEventFd(wake_.get());
  std::vector<std::function<void()>> posted;
  {
    std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (const std::function<void()>& closure : posted) closure();
}

void EventLoop::Run() {
  for (;;) {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll_.get(), events, 64, -1);
    SHUNT_CHECK(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kWake) {
        RunPosted();
      } else if (id == kTimer) {
        RunTimers();
      } else {
        std::shared_ptr<std::function<void(uint32_t)>> handler;
        {
          std::lock_guard lock(mutex_);
          const auto it = watched_.find(id);
          if (it != watched_.end()) handler = it->second.handler;
        }
        if (handler != nullptr) (*handler)(events[i].events);
      }
    }
    std::lock_guard lock(mutex_);
    if (stop_ && posted_.empty()) return;
  }
}

}  // namespace shunt::daemon
