#include "daemon/metrics/loops.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/core/clock.h"

namespace shunt::daemon::metrics {

void Loops::Add(std::string name, Post post, std::function<void()> visit) {
  auto loop = std::make_shared<Loop>();
  loop->name = std::move(name);
  loop->post = std::move(post);
  loop->visit = std::move(visit);
  loops_.push_back(std::move(loop));
}

void Loops::Ask() {
  for (const std::shared_ptr<Loop>& loop : loops_) {
    {
      const std::lock_guard lock(loop->mutex);
      if (loop->asked_ns != 0) continue;
      loop->asked_ns = NowNs();
    }
    // It may come when this object has gone.
    loop->post([loop] {
      const int64_t now = NowNs();
      if (loop->visit) loop->visit();
      const std::lock_guard lock(loop->mutex);
      loop->lag_ns = now - loop->asked_ns;
      loop->asked_ns = 0;
      loop->answered.notify_all();
    });
  }
}

void Loops::Await(int64_t deadline_ns) {
  for (const std::shared_ptr<Loop>& loop : loops_) {
    std::unique_lock lock(loop->mutex);
    const std::chrono::nanoseconds left(std::max<int64_t>(0, deadline_ns - NowNs()));
    loop->answered.wait_for(lock, left, [&] { return loop->asked_ns == 0; });
  }
}

std::vector<Loops::Lag> Loops::Read() const {
  std::vector<Lag> lags;
  for (const std::shared_ptr<Loop>& loop : loops_) {
    const std::lock_guard lock(loop->mutex);
    const int64_t open_ns = loop->asked_ns == 0 ? 0 : NowNs() - loop->asked_ns;
    lags.push_back({loop->name, 1e-9 * static_cast<double>(std::max(loop->lag_ns, open_ns))});
  }
  return lags;
}

}  // namespace shunt::daemon::metrics
