// Scratch memory of exchanges: kept for the next operation, up to a bound.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace shunt::exchange {

// Thread-compatible. Buffers are powers of two from 4 KiB, aligned to a page.
class BufferPool {
 public:
  explicit BufferPool(size_t keep_bytes_max) : keep_bytes_max_(keep_bytes_max) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;

  // Never null; the bytes are whatever they were.
  std::byte* Take(size_t bytes);
  // `bytes` as given to Take.
  void Give(std::byte* buffer, size_t bytes);

  size_t kept_bytes() const { return kept_bytes_; }
  size_t taken_bytes() const { return taken_bytes_; }

 private:
  static constexpr int kClasses = 52;
  static int ClassOf(size_t bytes);

  const size_t keep_bytes_max_;
  size_t kept_bytes_ = 0;
  size_t taken_bytes_ = 0;
  std::array<std::vector<std::byte*>, kClasses> kept_;
};

}  // namespace shunt::exchange
