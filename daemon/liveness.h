// Whether the threads that must never be held up still take work: each is asked a question, and
// whoever looks next sees whether it was answered. For a watchdog; it has no clock of its own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace shunt::daemon {

// Used by one thread; answers come on any.
class Liveness {
 public:
  // Has `answer` called once, soon, on the thread in question. Must not block.
  using Ask = std::function<void(std::function<void()> answer)>;

  void Add(std::string name, Ask ask);
  // The names of those that have not answered what the last call asked them. The others are asked
  // anew; a silent one is not asked twice, so questions do not pile up.
  std::vector<std::string> Silent();

 private:
  struct Thread {
    std::string name;
    Ask ask;
    std::shared_ptr<std::atomic<bool>> waits = std::make_shared<std::atomic<bool>>(false);
  };
  std::vector<Thread> threads_;
};

}  // namespace shunt::daemon
