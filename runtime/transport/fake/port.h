// What one direction of a node's link to the network carries, whoever shares it. Virtual time.
#pragma once

#include <cstdint>

namespace shunt::transport {

// A token bucket: frames that find their bytes in the bucket pass at the peak rate, others at the
// rate at which it is filled.
struct PortRate {
  double bytes_per_second = 0;  // 0: no port, only the connections limit
  double burst_bytes = 0;
  double peak_bytes_per_second = 0;  // with a burst; 0: no time at all
  int64_t frame_ns = 0;              // a frame's own time, whatever its length
};

struct PortUse {
  double bytes = 0;  // headers too
  // What that takes at the sustained rate: a bucket's burst has to be filled again.
  int64_t busy_ns = 0;
};

class Port {
 public:
  Port() = default;
  explicit Port(const PortRate& rate) : rate_(rate), tokens_(rate.burst_bytes) {}

  bool limits() const { return rate_.bytes_per_second > 0; }
  // When the port has passed what it has taken so far.
  int64_t free_ns() const { return free_ns_; }
  // Takes a frame at `start_ns`, not before free_ns(). Its result is how long it takes.
  int64_t Take(int64_t start_ns, double bytes);
  const PortUse& use() const { return use_; }

 private:
  PortRate rate_;
  double tokens_ = 0;
  int64_t filled_ns_ = 0;
  int64_t free_ns_ = 0;
  PortUse use_;
};

}  // namespace shunt::transport
