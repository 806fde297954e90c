// Threads that work on transfers, a chunk at a time, in the order of their classes.
//
//   latency     [a][b]        first; whatever is here, in turn, a chunk each
//   bulk        [c][d][e]     else this
//   background  [f]           else this
//
// One chunk in sixteen goes to the lowest class that waits, so that nothing starves.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace shunt::p2p {

// As shunt.v1.TransferClass numbers them.
enum class Priority : uint8_t { kBulk = 0, kLatency = 1, kBackground = 2 };

class Work {
 public:
  virtual ~Work() = default;
  // Does one chunk, some tens of microseconds of work. False if none is left to begin; it is then
  // not called again. Several threads call it at once.
  virtual bool Step() = 0;
};

// One chunk of work.
std::shared_ptr<Work> OneChunk(std::function<void()> work);

// Thread-safe.
class WorkPool {
 public:
  struct Options {
    int threads = 1;
    std::function<void(int index)> on_thread_start = {};
  };
  explicit WorkPool(Options options);
  ~WorkPool() { Stop(); }
  // Waits for chunks in the works; what has not begun never does. Idempotent.
  void Stop();
  WorkPool(const WorkPool&) = delete;

  // `chunks`: about how many there are, so that no thread wakes in vain.
  void Add(std::shared_ptr<Work> work, Priority priority, uint64_t chunks);

 private:
  struct Queue {
    std::vector<std::shared_ptr<Work>> works;
    size_t next = 0;  // whose turn it is
  };

  void Run(int index);
  // mutex_ held. Null if there is nothing.
  std::shared_ptr<Work> Pick();
  void Erase(const Work* work);

  const Options options_;
  std::mutex mutex_;
  std::condition_variable some_;
  std::array<Queue, 3> queues_;  // the most urgent first
  uint64_t picks_ = 0;
  int idle_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shunt::p2p
