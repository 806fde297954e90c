#include "runtime/p2p/section_wire.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "tests/p2p/memories.h"
#include "tests/p2p/reference.h"

namespace shunt::p2p {
namespace {

// Keys and values of `layers` layers, each a region of its own or all in one.
Section Cache(uint64_t layers, uint64_t blocks, bool apart) {
  constexpr uint64_t kBytes = 32 << 10;
  std::vector<RegionExtent> regions;
  std::vector<StridedSet> sets;
  for (uint64_t layer = 0; layer < layers; ++layer) {
    const uint64_t layer_bytes = 2 * blocks * kBytes;
    const uint64_t region = apart ? 100 + layer : 7;
    const uint64_t base = apart ? 0 : layer * layer_bytes;
    if (apart || layer == 0)
      regions.push_back({region, apart ? layer_bytes : layers * layer_bytes});
    sets.push_back({region,
                    base,
                    kBytes,
                    {{{1, 0}, {2, static_cast<int64_t>(blocks * kBytes)}, {blocks, kBytes}}}});
  }
  return MakeSection(sets, regions);
}

TEST_CASE("6.5 million blocks are a few hundred bytes", "[p2p]") {
  const Section one = Cache(80, 40'960, false), apart = Cache(80, 40'960, true);
  CHECK(PiecesOf(one) == 6'553'600);
  CHECK(EncodeSection(one).size() <= 160);
  CHECK(EncodeSection(apart).size() <= 400);
  CHECK(*DecodeSection(EncodeSection(one)) == one);
  CHECK(*DecodeSection(EncodeSection(apart)) == apart);
}

TEST_CASE("any section comes back as it was", "[p2p]") {
  for (int seed = 0; seed < 2000; ++seed) {
    Shapes shapes(seed);
    Section section = shapes.ASection({{2, 900}, {5, 6000}, {uint64_t{1} << 63, 2000}});
    section.name = std::string(shapes.Number(1, kSectionNameBytesMax), 'n');
    section.incarnation = shapes.Number(0, UINT64_MAX);
    section.version = shapes.Number(0, UINT64_MAX);
    const std::string bytes = EncodeSection(section);
    REQUIRE(bytes.size() <= kSectionBytesMax);
    REQUIRE(*DecodeSection(bytes) == section);
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      REQUIRE_FALSE(DecodeSection(std::string_view(bytes).substr(0, cut)).ok());
    }
    REQUIRE_FALSE(DecodeSection(bytes + '\0').ok());
  }
}

TEST_CASE("a section that breaks a rule is refused, however well it is written", "[p2p]") {
  Section section = Cache(4, 10, false);
  section.sets[2].dims[2].stride = -5;
  const auto decoded = DecodeSection(EncodeSection(section));
  CHECK(decoded.status().message().find("stride 2 is -5") != absl::string_view::npos);
  section = Cache(4, 10, false);
  section.regions[0].bytes -= 1;
  CHECK(DecodeSection(EncodeSection(section)).status().code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("longer forms of the same section are refused", "[p2p]") {
  const Section section = Cache(1, 10, false);
  std::string bytes = EncodeSection(section);
  // The name's length in two bytes.
  bytes[18] = static_cast<char>(bytes[18] | 0x80);
  bytes.insert(19, 1, '\0');
  CHECK_FALSE(DecodeSection(bytes).ok());
}

TEST_CASE("a delta makes the new version out of the old one", "[p2p]") {
  for (int seed = 0; seed < 2000; ++seed) {
    Shapes shapes(seed);
    const std::vector<RegionExtent> regions = {{2, 900}, {5, 6000}};
    Section from = shapes.ASection(regions), to = from;
    for (int i = 0; i < 3; ++i) {
      const StridedSet set = shapes.Set(regions[shapes.Number(0, 1)]);
      const auto at = to.sets.begin() + shapes.Number(0, to.sets.size() - 1);
      switch (shapes.Number(0, 3)) {
        case 0:
          to.sets.insert(at, set);
          break;
        case 1:
          *at = set;
          break;
        case 2:
          if (to.sets.size() > 1) to.sets.erase(at);
          break;
        default:
          break;
      }
    }
    to = MakeSection(to.sets, regions);
    to.version = 2;
    const std::string bytes = EncodeDelta(from, to);
    const auto made = ApplyDelta(from, bytes);
    INFO(made.status().ToString());
    REQUIRE(made.ok());
    REQUIRE(*made == to);
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      REQUIRE_FALSE(ApplyDelta(from, std::string_view(bytes).substr(0, cut)).ok());
    }
  }
}

TEST_CASE("one layer more costs a few bytes", "[p2p]") {
  const Section from = Cache(80, 40'960, false);
  Section to = Cache(81, 40'960, false);
  to.version = 2;
  const std::string bytes = EncodeDelta(from, to);
  CHECK(bytes.size() < 64);
  CHECK(*ApplyDelta(from, bytes) == to);
}

TEST_CASE("a delta for something else is noticed", "[p2p]") {
  const Section from = Cache(4, 100, false);
  Section to = Cache(5, 100, false);
  to.version = 2;
  const std::string bytes = EncodeDelta(from, to);
  constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  Section restarted = from;
  restarted.incarnation = 9;
  CHECK(ApplyDelta(restarted, bytes).status().code() == kPrecondition);
  Section later = from;
  later.version = 2;
  CHECK(ApplyDelta(later, bytes).status().code() == kPrecondition);
  // Versions count up: one that goes back, or stays, is its author's fault.
  for (const uint64_t version : {from.version, from.version - 1}) {
    to.version = version;
    const auto made = ApplyDelta(from, EncodeDelta(from, to));
    CHECK(made.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(made.status().message().find("expected a later one") != absl::string_view::npos);
  }
  Section differs = from;  // of the same number
  differs.sets[1].length -= 1;
  CHECK(ApplyDelta(differs, bytes).status().code() == kPrecondition);
}

}  // namespace
}  // namespace shunt::p2p
