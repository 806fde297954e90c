#include "runtime/recorder/lateness.h"

#include <algorithm>
#include <limits>

#include "runtime/core/check.h"

namespace shunt::recorder {
namespace {

// The smallest that is no less than `percent` of them.
int64_t Percentile(std::vector<int64_t>& values, int percent) {
  if (values.empty()) return 0;
  const size_t index = (values.size() * static_cast<size_t>(percent) + 99) / 100;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(index, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

std::vector<RankLateness> Lateness(int ranks, std::span<const std::vector<int64_t>> arrivals) {
  std::vector<RankLateness> result(static_cast<size_t>(ranks));
  std::vector<std::vector<int64_t>> late(result.size()), behind(result.size());
  for (const std::vector<int64_t>& of : arrivals) {
    SHUNT_CHECK(of.size() == result.size());
    std::vector<int64_t> sorted = of;
    const int64_t median = Percentile(sorted, 50);
    const int64_t first = *std::min_element(of.begin(), of.end());
    size_t last = 0;
    for (size_t rank = 0; rank < of.size(); ++rank) {
      late[rank].push_back(of[rank] - first);
      behind[rank].push_back(of[rank] - median);
      if (of[rank] >= of[last]) last = rank;
    }
    ++result[last].last;
  }
  for (size_t rank = 0; rank < result.size(); ++rank) {
    RankLateness& r = result[rank];
    r.operations = arrivals.size();
    r.median_ns = Percentile(late[rank], 50);
    r.p99_ns = Percentile(late[rank], 99);
    r.most_ns = Percentile(late[rank], 100);
    r.median_behind_median_ns = Percentile(behind[rank], 50);
  }
  return result;
}

ClockOffset OffsetOf(std::span<const RoundTrip> trips) {
  ClockOffset best{0, std::numeric_limits<int64_t>::max()};
  for (const RoundTrip& trip : trips) {
    const int64_t took = trip.answered_ns - trip.asked_ns;
    if (took < 0 || (took + 1) / 2 >= best.uncertainty_ns) continue;
    best = {trip.told_ns - (trip.asked_ns + took / 2), (took + 1) / 2};
  }
  return best;
}

}  // namespace shunt::recorder
