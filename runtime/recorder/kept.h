// The last of something, within a number and a number of bytes: what comes pushes out the oldest.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace shunt::recorder {

// Not thread-safe.
template <typename T>
class Kept {
 public:
  Kept(size_t number_max, size_t bytes_max) : number_max_(number_max), bytes_max_(bytes_max) {}

  // `bytes`: what it takes, as its owner counts. One that is larger than all there may be is not
  // kept.
  void Add(T item, size_t bytes) {
    if (number_max_ == 0 || bytes > bytes_max_) return;
    while (!items_.empty() && (items_.size() >= number_max_ || bytes_ + bytes > bytes_max_)) {
      bytes_ -= items_.front().second;
      items_.pop_front();
    }
    items_.emplace_back(std::move(item), bytes);
    bytes_ += bytes;
  }

  // Oldest first.
  template <typename F>
  void ForEach(F&& f) const {
    for (const auto& [item, bytes] : items_) f(item);
  }
  size_t size() const { return items_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  size_t number_max_, bytes_max_;
  std::deque<std::pair<T, size_t>> items_;
  size_t bytes_ = 0;
};

}  // namespace shunt::recorder
