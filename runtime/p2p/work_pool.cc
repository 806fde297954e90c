#include "runtime/p2p/work_pool.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace shunt::p2p {
namespace {

// Of so many chunks one goes to the lowest class that waits.
constexpr uint64_t kLowestEvery = 16;

class OneChunkOfWork : public Work {
 public:
  explicit OneChunkOfWork(std::function<void()> work) : work_(std::move(work)) {}
  bool Step() override {
    if (!taken_.exchange(true)) work_();
    return false;
  }

 private:
  const std::function<void()> work_;
  std::atomic<bool> taken_ = false;
};

size_t Rank(Priority priority) {
  switch (priority) {
    case Priority::kLatency:
      return 0;
    case Priority::kBulk:
      return 1;
    case Priority::kBackground:
      return 2;
  }
  return 1;
}

}  // namespace

std::shared_ptr<Work> OneChunk(std::function<void()> work) {
  return std::make_shared<OneChunkOfWork>(std::move(work));
}

WorkPool::WorkPool(Options options) : options_(std::move(options)) {
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this, i] { Run(i); });
}

void WorkPool::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    some_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkPool::Add(std::shared_ptr<Work> work, Priority priority, uint64_t chunks) {
  const std::lock_guard lock(mutex_);
  queues_[Rank(priority)].works.push_back(std::move(work));
  for (uint64_t i = 0; i < std::min<uint64_t>(chunks, static_cast<uint64_t>(idle_)); ++i) {
    some_.notify_one();
  }
}

std::shared_ptr<Work> WorkPool::Pick() {
  const auto waits = [](const Queue& queue) { return !queue.works.empty(); };
  Queue* queue;
  if (++picks_ % kLowestEvery == 0) {
    const auto lowest = std::find_if(queues_.rbegin(), queues_.rend(), waits);
    if (lowest == queues_.rend()) return nullptr;
    queue = &*lowest;
  } else {
    const auto first = std::find_if(queues_.begin(), queues_.end(), waits);
    if (first == queues_.end()) return nullptr;
    queue = &*first;
  }
  if (queue->next >= queue->works.size()) queue->next = 0;
  return queue->works[queue->next++];
}

void WorkPool::Erase(const Work* work) {
  for (Queue& queue : queues_) {
    const auto found = std::find_if(queue.works.begin(), queue.works.end(),
                                    [&](const auto& w) { return w.get() == work; });
    if (found == queue.works.end()) continue;
    if (queue.next > static_cast<size_t>(found - queue.works.begin())) --queue.next;
    queue.works.erase(found);
    return;
  }
}

void WorkPool::Run(int index) {
  if (options_.on_thread_start) options_.on_thread_start(index);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::shared_ptr<Work> work = Pick();
    if (work == nullptr) {
      ++idle_;
      some_.wait(lock);
      --idle_;
      continue;
    }
    lock.unlock();
    const bool more = work->Step();
    lock.lock();
    if (!more) Erase(work.get());
    lock.unlock();
    work.reset();  // may be the last reference: not under the lock
    lock.lock();
  }
}

}  // namespace shunt::p2p
