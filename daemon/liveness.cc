#include "daemon/liveness.h"

#include <utility>

namespace shunt::daemon {

void Liveness::Add(std::string name, Ask ask) {
  threads_.push_back({std::move(name), std::move(ask)});
}

std::vector<std::string> Liveness::Silent() {
  std::vector<std::string> silent;
  for (Thread& thread : threads_) {
    if (thread.waits->exchange(true)) {
      silent.push_back(thread.name);
      continue;
    }
    // The answer may come when this object has gone.
    thread.ask([waits = thread.waits] { waits->store(false); });
  }
  return silent;
}

}  // namespace shunt::daemon
