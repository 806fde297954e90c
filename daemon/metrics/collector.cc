#include "daemon/metrics/collector.h"

#include <utility>

#include "daemon/metrics/peers.h"
#include "runtime/core/clock.h"

namespace shunt::daemon::metrics {
namespace {

// For the loops' answers.
constexpr int64_t kPatienceNs = 100'000'000;

}  // namespace

Collector::Collector(Sources sources)
    : sources_(std::move(sources)), peers_(std::make_shared<Peers>()), rates_(NowNs()) {}

void Collector::Watch(std::string name, Loops::Post post) {
  const std::lock_guard lock(mutex_);
  std::function<void()> visit;
  if (name == "control" && sources_.peers) {
    visit = [peers = peers_, ask = sources_.peers] { peers->Set(ask()); };
  }
  loops_.Add(std::move(name), std::move(post), std::move(visit));
}

std::shared_ptr<const Page> Collector::Collect() {
  uint64_t seen;
  {
    const std::lock_guard lock(begun_mutex_);
    seen = begun_;
  }
  const std::lock_guard lock(mutex_);
  if (last_ != nullptr && last_number_ > seen) return last_;
  uint64_t number;
  {
    const std::lock_guard begun(begun_mutex_);
    number = ++begun_;
  }
  loops_.Ask();
  auto page = std::make_shared<Page>();
  const int64_t now = NowNs();
  Daemon(page.get());
  Memory(page.get());
  Operations(page.get());
  Communicators(page.get());
  Transfers(page.get());
  Stores(page.get());
  Links(page.get(), now);
  loops_.Await(now + kPatienceNs);
  Nodes(page.get());
  Family& lag = page->Gauge("shunt_event_loop_lag_seconds",
                            "How long a question to a loop of the daemon waited for its turn; "
                            "grows while the loop does not answer.");
  for (const Loops::Lag& loop : loops_.Read()) lag.Add({{"loop", loop.name}}, loop.seconds);
  Process(page.get());
  last_ = std::move(page);
  last_number_ = number;
  return last_;
}

}  // namespace shunt::daemon::metrics
