// What modules count, as plain words that somebody else reads. Adding is one relaxed atomic
// addition: no lock, no order. What is read is exact once those who add have stopped; a reader
// beside them may see one of two words that belong together before the other.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace shunt {

// Only grows. Any thread.
class Count {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

// The last number that was seen. Any thread.
class Level {
 public:
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

// How long things took, in buckets that grow by 4: up to 1.024 us, 4.096 us, ... 68.7 s, and
// beyond. Finding one's bucket is a shift, not a search. Any thread.
class Durations {
 public:
  static constexpr int kBounds = 14;
  static constexpr int64_t BoundNs(int bucket) { return int64_t{1} << (10 + 2 * bucket); }

  void Add(int64_t ns) {
    const uint64_t took = ns > 0 ? static_cast<uint64_t>(ns) : 0;
    counts_[BucketOf(took)].Add();
    sum_ns_.Add(took);
  }

  struct Snapshot {
    std::array<uint64_t, kBounds + 1> counts = {};  // the last: beyond all bounds
    uint64_t sum_ns = 0;
    uint64_t count = 0;  // of all buckets
  };
  Snapshot Read() const {
    Snapshot snapshot;
    for (size_t i = 0; i < counts_.size(); ++i) {
      snapshot.counts[i] = counts_[i].value();
      snapshot.count += snapshot.counts[i];
    }
    snapshot.sum_ns = sum_ns_.value();
    return snapshot;
  }

  // The first bucket whose bound is not below `ns`.
  static constexpr size_t BucketOf(uint64_t ns) {
    const int bits = ns == 0 ? 0 : std::bit_width(ns - 1);
    const int bucket = bits <= 10 ? 0 : (bits - 9) / 2;
    return static_cast<size_t>(bucket < kBounds ? bucket : kBounds);
  }

 private:
  std::array<Count, kBounds + 1> counts_;
  Count sum_ns_;
};

}  // namespace shunt
