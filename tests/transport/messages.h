// Short names for what the tests post.
#pragma once

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
