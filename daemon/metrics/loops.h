// Asks the daemon's loops something at every scrape: how long a question waits for its turn is the
// loop's lag. Nobody waits for an answer for long, so a loop that hangs shows, and hangs no scrape.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace shunt::daemon::metrics {

// Ask and Read are one thread's; answers come on the loops' threads.
class Loops {
 public:
  // Has the closure run soon, on the loop. May drop it when the loop has ended.
  using Post = std::function<void(std::function<void()>)>;

  // `name` is a label's value. `visit`, if any, runs on the loop with each question.
  void Add(std::string name, Post post, std::function<void()> visit = {});

  // A question to each that has answered the last one.
  void Ask();
  // Waits for the answers, until then at most.
  void Await(int64_t deadline_ns);

  struct Lag {
    std::string name;
    double seconds = 0;  // of the last answer, or so far if that is more
  };
  std::vector<Lag> Read() const;

 private:
  struct Loop {
    std::string name;
    Post post;
    std::function<void()> visit;
    std::mutex mutex;
    std::condition_variable answered;
    int64_t asked_ns = 0;  // 0: no question is open
    int64_t lag_ns = 0;
  };
  std::vector<std::shared_ptr<Loop>> loops_;
};

}  // namespace shunt::daemon::metrics
