#include "daemon/event_loop.h"

#include <sys/epoll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace shunt::daemon {
namespace {

// Runs a loop on a thread of its own; everything posted before the end has run when it is
// destroyed.
class Running {
 public:
  Running() : loop(*EventLoop::Make()), thread_([this] { loop->Run(); }) {}
  ~Running() { Finish(); }
  void Finish() {
    if (!thread_.joinable()) return;
    loop->Stop();
    thread_.join();
  }
  std::unique_ptr<EventLoop> loop;

 private:
  std::thread thread_;
};

TEST_CASE("closures run in the order in which they were posted") {
  std::vector<int> seen;
  {
    Running running;
    for (int i = 0; i < 100; ++i) running.loop->Post([&seen, i] { seen.push_back(i); });
  }
  REQUIRE(seen.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(seen[i] == i);
}

TEST_CASE("timers fire in order of their deadlines, not before, and a cancelled one never") {
  Running running;
  std::atomic<int> fired = 0;
  std::vector<int> order;
  const int64_t start = NowNs();
  int64_t last_ns = 0;
  const UniqueFd done = *MakeEventFd();
  running.loop->At(start + 20'000'000, [&] {
    order.push_back(2);
    last_ns = NowNs();
    SignalEventFd(done.get());
  });
  running.loop->At(start + 5'000'000, [&] { order.push_back(1); });
  const EventLoop::TimerId cancelled = running.loop->At(start + 1'000'000'000, [&] { ++fired; });
  CHECK(running.loop->Cancel(cancelled));
  CHECK_FALSE(running.loop->Cancel(cancelled));
  CHECK_FALSE(running.loop->Cancel(0));
  CHECK(running.loop->At(kNeverNs, [&] { ++fired; }) == 0);
  while (DrainEventFd(done.get()) == 0) std::this_thread::yield();
  running.Finish();
  CHECK(order == std::vector<int>{1, 2});
  CHECK(last_ns >= start + 20'000'000);
  CHECK(fired == 0);
}

TEST_CASE("a past deadline fires at once") {
  const UniqueFd done = *MakeEventFd();
  Running running;
  running.loop->At(-5, [&] { SignalEventFd(done.get()); });
  while (DrainEventFd(done.get()) == 0) std::this_thread::yield();
}

TEST_CASE("a watched descriptor calls its handler until it is no more watched") {
  const UniqueFd fd = *MakeEventFd();
  const UniqueFd done = *MakeEventFd();
  Running running;
  std::atomic<int> calls = 0;
  const auto id = *running.loop->Watch(fd.get(), EPOLLIN, [&](uint32_t) {
    ++calls;
    DrainEventFd(fd.get());
    SignalEventFd(done.get());
  });
  for (int i = 0; i < 3; ++i) {
    SignalEventFd(fd.get());
    while (DrainEventFd(done.get()) == 0) std::this_thread::yield();
  }
  CHECK(calls == 3);
  running.loop->Unwatch(id);
  SignalEventFd(fd.get());
  running.Finish();
  CHECK(calls == 3);
  CHECK_FALSE(running.loop->Change(id, EPOLLIN).ok());
}

TEST_CASE("a handler may take away its own watch") {
  const UniqueFd fd = *MakeEventFd();
  const UniqueFd done = *MakeEventFd();
  Running running;
  EventLoop::WatchId id = 0;
  running.loop->Post([&] {
    id = *running.loop->Watch(fd.get(), EPOLLIN, [&](uint32_t) {
      running.loop->Unwatch(id);
      SignalEventFd(done.get());
    });
    SignalEventFd(fd.get());
  });
  while (DrainEventFd(done.get()) == 0) std::this_thread::yield();
}

}  // namespace
}  // namespace shunt::daemon
