// Who keeps the others waiting: from the moments at which ranks came to operations that all of them
// took part in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shunt::recorder {

struct RankLateness {
  uint64_t operations = 0;
  uint64_t last = 0;  // how often it was the last to come
  // Behind the first to come, over these operations.
  int64_t median_ns = 0;
  int64_t p99_ns = 0;
  int64_t most_ns = 0;
  // Behind the median rank; negative: before it.
  int64_t median_behind_median_ns = 0;
};

// One arrival for each rank and operation: `arrivals[operation][rank]`. Who comes last at the same
// moment as another counts by its number, the higher one.
std::vector<RankLateness> Lateness(int ranks, std::span<const std::vector<int64_t>> arrivals);

// Of two clocks, by one question: asked and answered by the one that asks, `told_ns` by the other
// meanwhile.
struct RoundTrip {
  int64_t asked_ns = 0, told_ns = 0, answered_ns = 0;
};
// The other clock less this one's, by the fastest question; it is off by `uncertainty_ns` at most.
struct ClockOffset {
  int64_t offset_ns = 0;
  int64_t uncertainty_ns = 0;
};
// With no round trips: 0, and an uncertainty of INT64_MAX.
ClockOffset OffsetOf(std::span<const RoundTrip> trips);

}  // namespace shunt::recorder
