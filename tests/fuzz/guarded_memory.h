// Zeroed memory that ends at a page nobody may touch: a step beyond it crashes, whatever compiled
// the code.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <span>

#include "runtime/core/check.h"

namespace shunt::testing {

class GuardedMemory {
 public:
  // `bytes` is a multiple of the page size.
  explicit GuardedMemory(size_t bytes) : bytes_(bytes) {
    void* p = ::mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0);
    SHUNT_CHECK(p != MAP_FAILED);
    SHUNT_CHECK(::mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0);
    data_ = static_cast<std::byte*>(p);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { ::munmap(data_, bytes_ + kPage); }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  static constexpr size_t kPage = 4096;

  std::byte* data_;
  size_t bytes_;
};

}  // namespace shunt::testing
