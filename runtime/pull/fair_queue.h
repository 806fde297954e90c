// What waits to be begun, in turn among those who asked, and so many at most of each: who has
// queued ten thousand doesn't hold up who has queued one.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "runtime/core/check.h"

namespace shunt::pull {

template <typename T>
class FairQueue {
 public:
  // `running_max`: of each asker.
  explicit FairQueue(int running_max) : running_max_(running_max) {}

  void Push(uint32_t asker, T item) {
    askers_[asker].waiting.push_back(std::move(item));
    List(asker);
  }
  // Null if nothing may be begun.
  T* Next() { return turns_.empty() ? nullptr : &askers_.at(turns_.front()).waiting.front(); }
  // Begins that; Done follows.
  T Begin() {
    SHUNT_CHECK(!turns_.empty());
    const uint32_t asker = turns_.front();
    turns_.pop_front();
    Asker& own = askers_.at(asker);
    own.listed = false;
    T item = std::move(own.waiting.front());
    own.waiting.pop_front();
    ++own.running;
    List(asker);
    return item;
  }
  void Done(uint32_t asker) {
    --askers_.at(asker).running;
    List(asker);
  }
  // Takes out the first that `is` holds for.
  template <typename Is>
  std::optional<T> Remove(Is&& is) {
    for (auto& [asker, own] : askers_) {
      for (auto it = own.waiting.begin(); it != own.waiting.end(); ++it) {
        if (!is(*it)) continue;
        std::optional<T> item = std::move(*it);
        own.waiting.erase(it);
        if (own.waiting.empty() && std::exchange(own.listed, false)) std::erase(turns_, asker);
        List(uint32_t{asker});
        return item;
      }
    }
    return std::nullopt;
  }
  // Of what waits.
  template <typename F>
  void ForEach(F&& f) {
    for (auto& [asker, own] : askers_) {
      for (T& item : own.waiting) f(item);
    }
  }

 private:
  struct Asker {
    std::deque<T> waiting;
    int running = 0;
    bool listed = false;  // in turns_
  };
  // Gives the asker a turn if it can use one; forgets it if it has nothing.
  void List(uint32_t asker) {
    Asker& own = askers_.at(asker);
    if (own.waiting.empty() && own.running == 0) {
      askers_.erase(asker);
    } else if (!own.listed && !own.waiting.empty() && own.running < running_max_) {
      own.listed = true;
      turns_.push_back(asker);
    }
  }

  const int running_max_;
  absl::flat_hash_map<uint32_t, Asker> askers_;
  std::deque<uint32_t> turns_;
};

}  // namespace shunt::pull
