// How fast a counter grows, for whoever asks now and then: since the last time that somebody asked
// and a second or more had passed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace shunt::daemon::metrics {

// Not thread-safe.
class Rates {
 public:
  // Two who ask in turn see the same, and not the noise of a few milliseconds.
  static constexpr int64_t kLeastNs = 1'000'000'000;

  // Counters are taken to have been 0 then.
  explicit Rates(int64_t began_ns) : began_ns_(began_ns) {}

  // Units a second. 0 the first time if that is too soon.
  double Of(const std::string& counter, uint64_t value, int64_t now_ns) {
    const auto [it, fresh] = counters_.try_emplace(counter, Last{began_ns_, 0, 0});
    Last& last = it->second;
    if (now_ns - last.at_ns < kLeastNs) return last.rate;
    const uint64_t grown = value > last.value ? value - last.value : 0;
    last = {now_ns, value,
            1e9 * static_cast<double>(grown) / static_cast<double>(now_ns - last.at_ns)};
    return last.rate;
  }

 private:
  struct Last {
    int64_t at_ns;
    uint64_t value;
    double rate;
  };
  const int64_t began_ns_;
  std::map<std::string, Last> counters_;
};

}  // namespace shunt::daemon::metrics
