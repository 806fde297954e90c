#include "runtime/transport/fake/port.h"

#include <algorithm>

#include "runtime/core/check.h"

namespace shunt::transport {

int64_t Port::Take(int64_t start_ns, double bytes) {
  SHUNT_CHECK(limits() && start_ns >= free_ns_);
  const double filled = static_cast<double>(start_ns - filled_ns_) * 1e-9 * rate_.bytes_per_second;
  tokens_ = std::min(rate_.burst_bytes, tokens_ + filled);
  filled_ns_ = start_ns;
  double seconds = std::max(0.0, bytes - tokens_) / rate_.bytes_per_second;
  if (rate_.peak_bytes_per_second > 0) {
    seconds = std::max(seconds, bytes / rate_.peak_bytes_per_second);
  }
  // Below zero until the frame has passed.
  tokens_ -= bytes;
  const auto duration_ns = static_cast<int64_t>(seconds * 1e9) + rate_.frame_ns;
  free_ns_ = start_ns + duration_ns;
  use_.bytes += bytes;
  use_.busy_ns += static_cast<int64_t>(bytes / rate_.bytes_per_second * 1e9) + rate_.frame_ns;
  return duration_ns;
}

}  // namespace shunt::transport
