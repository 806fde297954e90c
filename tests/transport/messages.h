// Short names for what the tests post.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/transport/transport.h"

namespace shunt::transport::testing {

using Buffer = std::vector<std::byte>;

inline Buffer Pattern(size_t bytes, uint64_t seed) {
  Buffer buffer(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (std::byte& b : buffer) {
    state = state * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(state >> 56);
  }
  return buffer;
}

// The buffer in so many places at most, which lie the other way round than the payload.
inline std::vector<iovec> Backwards(Buffer* buffer, size_t places) {
  const size_t length = (buffer->size() + places - 1) / places;
  std::vector<iovec> result;
  for (size_t end = buffer->size(); end > 0;) {
    const size_t here = std::min(length, end);
    end -= here;
    result.push_back({buffer->data() + end, here});
  }
  return result;
}
inline Buffer Payload(const std::vector<iovec>& places) {
  Buffer payload;
  for (const iovec& place : places) {
    const auto* begin = static_cast<const std::byte*>(place.iov_base);
    payload.insert(payload.end(), begin, begin + place.iov_len);
  }
  return payload;
}

// Without printing megabytes.
template <typename T>
bool Same(const T& a, const T& b) {
  return a == b;
}

inline Message To(PeerId peer, uint32_t slice, uint64_t communicator = 1, Signature signature = 5) {
  Message m;
  m.peer = peer;
  m.tag = {.communicator = communicator, .sequence = 1, .channel = 0, .step = 0, .slice = slice};
  m.signature = signature;
  return m;
}

inline absl::Span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace shunt::transport::testing
