// How long to wait before another try: pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace shunt::storage {

// After `failures` of them (at least 1): up to first * 2^(failures-1), at most `most`. `random` in
// [0, 1) spreads many clients over all of that time, so that they don't come back together ("full
// jitter" in the AWS Architecture Blog, "Exponential Backoff And Jitter").
inline std::chrono::nanoseconds Backoff(uint32_t failures, std::chrono::nanoseconds first,
                                        std::chrono::nanoseconds most, double random) {
  std::chrono::nanoseconds limit = first;
  for (uint32_t i = 1; i < failures && limit < most; ++i) limit *= 2;
  limit = std::min(limit, most);
  return std::chrono::nanoseconds(
      static_cast<int64_t>(static_cast<double>(limit.count()) * random));
}

}  // namespace shunt::storage
