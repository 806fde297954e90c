// What waits to be begun, in turn among those who asked. So much runs at a time; but each asker may
// have one thing running in any case: who has begun a hundred long ones doesn't hold up who asks
// for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "runtime/core/check.h"

namespace shunt::pull {

struct FairLimits {
  int running = 0;          // of all askers, but for one of each
  int running_at_most = 0;  // with these too
  uint64_t cost = 0;        // of what runs, of each asker; one thing may cost more
};

template <typename T>
class FairQueue {
 public:
  explicit FairQueue(const FairLimits& limits) : limits_(limits) {}

  void Push(uint32_t asker, uint64_t cost, T item) {
    Asker& own = askers_[asker];
    if (own.waiting.empty()) turns_.push_back(asker);
    own.waiting.push_back({cost, std::move(item)});
  }
  // Begins the next one that may be, and Done follows; nothing if none may.
  std::optional<T> Begin() {
    for (size_t looked = 0; looked < turns_.size(); ++looked) {
      const uint32_t asker = turns_.front();
      turns_.pop_front();
      Asker& own = askers_.at(asker);
      if (!MayBegin(own)) {
        turns_.push_back(asker);
        continue;
      }
      Entry entry = std::move(own.waiting.front());
      own.waiting.pop_front();
      if (!own.waiting.empty()) turns_.push_back(asker);
      ++running_;
      ++own.running;
      own.cost += entry.cost;
      return std::move(entry.item);
    }
    return std::nullopt;
  }
  void Done(uint32_t asker, uint64_t cost) {
    Asker& own = askers_.at(asker);
    --running_;
    --own.running;
    own.cost -= cost;
    ForgetIdle(asker);
  }
  // Takes out the first that waits and that `is` holds for.
  template <typename Is>
  std::optional<T> Remove(Is&& is) {
    for (auto& [asker, own] : askers_) {
      for (auto it = own.waiting.begin(); it != own.waiting.end(); ++it) {
        if (!is(it->item)) continue;
        std::optional<T> item = std::move(it->item);
        own.waiting.erase(it);
        if (own.waiting.empty()) std::erase(turns_, asker);
        ForgetIdle(uint32_t{asker});
        return item;
      }
    }
    return std::nullopt;
  }
  // Calls it with all that waits.
  template <typename F>
  void ForEach(F&& f) {
    for (auto& [asker, own] : askers_) {
      for (Entry& entry : own.waiting) f(entry.item);
    }
  }

 private:
  struct Entry {
    uint64_t cost = 0;
    T item;
  };
  struct Asker {
    std::deque<Entry> waiting;
    int running = 0;
    uint64_t cost = 0;
  };
  bool MayBegin(const Asker& own) const {
    if (own.running == 0) return running_ < limits_.running_at_most;
    return running_ < limits_.running && own.cost + own.waiting.front().cost <= limits_.cost;
  }
  void ForgetIdle(uint32_t asker) {
    const Asker& own = askers_.at(asker);
    if (own.waiting.empty() && own.running == 0) askers_.erase(asker);
  }

  const FairLimits limits_;
  absl::flat_hash_map<uint32_t, Asker> askers_;
  std::deque<uint32_t> turns_;  // of those who have something waiting
  int running_ = 0;
};

}  // namespace shunt::pull
