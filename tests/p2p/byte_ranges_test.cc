#include "runtime/p2p/byte_ranges.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

namespace shunt::p2p {
namespace {

std::vector<uint64_t> Begins(const std::vector<ByteRange>& ranges) {
  std::vector<uint64_t> begins;
  for (const ByteRange& range : ranges) begins.push_back(range.begin);
  return begins;
}

TEST_CASE("ranges are sorted, whichever of their bits differ", "[p2p]") {
  std::mt19937_64 random(1);
  for (const size_t count : {0, 1, 2, 255, 256, 257, 5000}) {
    for (const uint64_t mask : {~uint64_t{0}, uint64_t{0xfff}, uint64_t{0xfff} << 52,
                                uint64_t{1} << 63, uint64_t{0x8000000000000001}, uint64_t{0}}) {
      std::vector<ByteRange> ranges(count);
      for (ByteRange& range : ranges) {
        range.begin = random() & mask;
        range.end = ~range.begin;
      }
      std::vector<uint64_t> expected = Begins(ranges);
      std::sort(expected.begin(), expected.end());
      SortByBegin(&ranges);
      REQUIRE(Begins(ranges) == expected);
      REQUIRE(std::all_of(ranges.begin(), ranges.end(),
                          [](const ByteRange& range) { return range.end == ~range.begin; }));
    }
  }
}

TEST_CASE("bits find what sorting finds", "[p2p]") {
  std::mt19937 random(2);
  int overlapping = 0;
  for (int round = 0; round < 500; ++round) {
    // Units of 64 bytes; some ranges are longer than a word of bits.
    std::vector<ByteRange> ranges(40);
    RangeSummary summary;
    for (ByteRange& range : ranges) {
      range.begin = random() % 20'000 * 64;
      range.end = range.begin + (1 + random() % (random() % 10 == 0 ? 120 : 10)) * 64;
      summary.Add(range);
    }
    auto bits = RangeBits::For(summary);
    REQUIRE(bits.has_value());
    bool twice = false;
    for (const ByteRange& range : ranges) {
      const bool has = bits->Has(range);
      const bool added = bits->Add(range);
      REQUIRE(has == !added);
      REQUIRE(bits->Has(range));
      twice |= has;
    }
    SortByBegin(&ranges);
    REQUIRE((FindOverlap(ranges) >= 0) == twice);
    overlapping += twice ? 1 : 0;
  }
  CHECK(overlapping > 50);
  CHECK(overlapping < 450);
}

TEST_CASE("few ranges far apart are not worth bits", "[p2p]") {
  RangeSummary summary;
  summary.Add({0, 1});
  summary.Add({uint64_t{1} << 40, (uint64_t{1} << 40) + 1});
  CHECK_FALSE(RangeBits::For(summary).has_value());
}

}  // namespace
}  // namespace shunt::p2p
