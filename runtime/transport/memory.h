// The caller's memory of one message: in one place, or in several, as pieces of a cache lie. The
// carrier names the places to the kernel itself, so nobody gathers or scatters them.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/types/span.h"

namespace shunt::transport {

// What a carrier names to the kernel in one call; Linux takes 1024 (IOV_MAX).
inline constexpr size_t kPlacesMax = 512;

// In the order of the payload.
using Places = std::vector<iovec>;

struct Memory {
  std::byte* data = nullptr;  // in one place; a send's is only read
  uint64_t bytes = 0;
  std::shared_ptr<const Places> places;  // or in these; then `data` is null

  Memory() = default;
  explicit Memory(absl::Span<std::byte> one) : data(one.data()), bytes(one.size()) {}
  explicit Memory(absl::Span<const std::byte> one)
      : data(const_cast<std::byte*>(one.data())), bytes(one.size()) {}
  explicit Memory(absl::Span<const iovec> several) {
    for (const iovec& place : several) bytes += place.iov_len;
    if (several.size() == 1) {
      data = static_cast<std::byte*>(several[0].iov_base);
    } else {
      places = std::make_shared<const Places>(several.begin(), several.end());
    }
  }

  // Calls `f(std::byte* place, size_t length)` for each place of the `length` bytes from `begin`
  // on. `f` returns false to end it.
  template <typename F>
  void ForEachPlace(uint64_t begin, uint64_t length, F&& f) const {
    if (places == nullptr) {
      if (length != 0) f(data + begin, length);
      return;
    }
    for (const iovec& place : *places) {
      if (length == 0) return;
      if (begin >= place.iov_len) {
        begin -= place.iov_len;
        continue;
      }
      const uint64_t here = std::min<uint64_t>(place.iov_len - begin, length);
      if (!f(static_cast<std::byte*>(place.iov_base) + begin, here)) return;
      begin = 0;
      length -= here;
    }
  }
  void CopyTo(uint64_t begin, std::byte* to, uint64_t length) const {
    ForEachPlace(begin, length, [&to](const std::byte* place, size_t here) {
      std::memcpy(to, place, here);
      to += here;
      return true;
    });
  }
  void CopyFrom(uint64_t begin, const std::byte* from, uint64_t length) const {
    ForEachPlace(begin, length, [&from](std::byte* place, size_t here) {
      std::memcpy(place, from, here);
      from += here;
      return true;
    });
  }
};

}  // namespace shunt::transport
