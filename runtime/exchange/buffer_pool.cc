#include "runtime/exchange/buffer_pool.h"

#include <bit>
#include <new>

namespace shunt::exchange {
namespace {

constexpr int kSmallestShift = 12;
constexpr std::align_val_t kAlign{4096};

}  // namespace

BufferPool::~BufferPool() {
  for (std::vector<std::byte*>& buffers : kept_) {
    for (std::byte* buffer : buffers) ::operator delete(buffer, kAlign);
  }
}

int BufferPool::ClassOf(size_t bytes) {
  if (bytes <= (size_t{1} << kSmallestShift)) return 0;
  return std::bit_width(bytes - 1) - kSmallestShift;
}

std::byte* BufferPool::Take(size_t bytes) {
  const int c = ClassOf(bytes);
  const size_t size = size_t{1} << (c + kSmallestShift);
  taken_bytes_ += size;
  if (!kept_[c].empty()) {
    std::byte* buffer = kept_[c].back();
    kept_[c].pop_back();
    kept_bytes_ -= size;
    return buffer;
  }
  return static_cast<std::byte*>(::operator new(size, kAlign));
}

void BufferPool::Give(std::byte* buffer, size_t bytes) {
  const int c = ClassOf(bytes);
  const size_t size = size_t{1} << (c + kSmallestShift);
  taken_bytes_ -= size;
  if (kept_bytes_ + size > keep_bytes_max_) {
    ::operator delete(buffer, kAlign);
    return;
  }
  kept_[c].push_back(buffer);
  kept_bytes_ += size;
}

}  // namespace shunt::exchange
