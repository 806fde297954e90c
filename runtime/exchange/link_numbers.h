// What a node has measured of its way to other nodes. Plain numbers, for they travel.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shunt::exchange {

// 0: not measured.
struct LinkNumbers {
  uint64_t latency_ns = 0;   // of the way: a short message takes this and message_ns
  uint64_t message_ns = 0;   // a node's own time for each message
  uint64_t bytes_per_s = 0;  // each direction
  bool operator==(const LinkNumbers&) const = default;
};

// The slower of both in everything.
inline LinkNumbers Worst(const LinkNumbers& a, const LinkNumbers& b) {
  const bool both = a.bytes_per_s != 0 && b.bytes_per_s != 0;
  return {std::max(a.latency_ns, b.latency_ns), std::max(a.message_ns, b.message_ns),
          both ? std::min(a.bytes_per_s, b.bytes_per_s) : std::max(a.bytes_per_s, b.bytes_per_s)};
}

}  // namespace shunt::exchange
