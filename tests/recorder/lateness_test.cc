#include "runtime/recorder/lateness.h"

#include <catch2/catch.hpp>
#include <limits>

namespace shunt::recorder {
namespace {

TEST_CASE("lateness is counted from the first to come") {
  // Rank 1 is 100 late, once 900; rank 2 10 early, once last.
  std::vector<std::vector<int64_t>> arrivals(99, {1000, 1100, 990});
  arrivals.push_back({1000, 1900, 2000});
  const auto late = Lateness(3, arrivals);
  CHECK(late[0].operations == 100);
  CHECK(late[0].median_ns == 10);
  CHECK(late[0].last == 0);
  CHECK(late[1].median_ns == 110);
  CHECK(late[1].p99_ns == 110);
  CHECK(late[1].most_ns == 900);
  CHECK(late[1].last == 99);
  CHECK(late[1].median_behind_median_ns == 100);
  CHECK(late[2].median_ns == 0);
  CHECK(late[2].most_ns == 1000);
  CHECK(late[2].last == 1);
  CHECK(late[2].median_behind_median_ns == -10);
}

TEST_CASE("the fastest question tells the other clock best") {
  const std::vector<RoundTrip> trips = {
      {0, 10'500, 1000}, {2000, 12'060, 2100}, {4000, 14'900, 5000}};
  const ClockOffset offset = OffsetOf(trips);
  CHECK(offset.offset_ns == 12'060 - 2050);
  CHECK(offset.uncertainty_ns == 50);
}

TEST_CASE("without an answer nothing is known of the other clock") {
  CHECK(OffsetOf({}).uncertainty_ns == std::numeric_limits<int64_t>::max());
  // Nor by a clock that runs backwards.
  const std::vector<RoundTrip> backwards = {{1000, 500, 900}};
  CHECK(OffsetOf(backwards).uncertainty_ns == std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace shunt::recorder
