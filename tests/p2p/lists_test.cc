// What is refused, and with which words; what is found in lists that nobody could write down.
#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "runtime/p2p/cursor.h"
#include "runtime/p2p/disjoint.h"
#include "runtime/p2p/transfer_plan.h"
#include "tests/p2p/memories.h"
#include "tests/p2p/reference.h"

namespace shunt::p2p {
namespace {

constexpr uint64_t kMiB = 1 << 20;

bool Says(const absl::Status& status, absl::StatusCode code, const std::string& words) {
  INFO(status.ToString());
  CHECK(status.code() == code);
  return std::string(status.message()).find(words) != std::string::npos;
}
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;

StridedSet Line(uint64_t region, uint64_t base, uint64_t length, uint64_t count, int64_t stride) {
  return {region, base, length, {{{1, 0}, {1, 0}, {count, stride}}}};
}

std::shared_ptr<const PreparedList> Blocks(uint64_t count, uint64_t length, Space space = 0) {
  return *PreparedList::Prepare(
      MakeSection({Line(1, 0, length, count, static_cast<int64_t>(length))}, {{1, count * length}}),
      space);
}

TEST_CASE("strided sets that make no sense are refused in words", "[p2p]") {
  const StridedSet good = {1, 64, 16, {{{2, 4096}, {4, 1024}, {8, 128}}}};
  REQUIRE(Check(good, kMiB).ok());
  StridedSet set = good;
  set.length = 0;
  CHECK(Says(Check(set, kMiB), kInvalid, "0 bytes"));
  set = good;
  set.dims[1].count = 0;
  CHECK(Says(Check(set, kMiB), kInvalid, "count 1 is 0"));
  set = good;
  set.dims[2].stride = -128;
  CHECK(Says(Check(set, kMiB), kInvalid, "stride 2 is -128"));
  set.dims[2].stride = std::numeric_limits<int64_t>::min();
  CHECK(Says(Check(set, kMiB), kInvalid, "expected none below 0"));
  set = good;
  set.dims[2].stride = 15;
  CHECK(Says(Check(set, kMiB), kInvalid, "stride 15 is less than the 16 bytes"));
  set.dims[2].stride = 0;
  CHECK(Says(Check(set, kMiB), kInvalid, "pieces overlap"));
  set = good;
  set.dims[0].stride = 4095;
  CHECK(Check(set, kMiB).ok());
  set.dims[0].stride = 3 * 1024 + 7 * 128 + 15;
  CHECK(Says(Check(set, kMiB), kInvalid, "pieces overlap"));
  set = good;
  set.dims[1].count = uint64_t{1} << 62;
  CHECK(Says(Check(set, kMiB), kInvalid, "more than 1099511627776 pieces"));
  set.dims = {{{uint64_t{1} << 32, 1}, {uint64_t{1} << 32, 1}, {uint64_t{1} << 32, 1}}};
  CHECK(Says(Check(set, kMiB), kInvalid, "pieces"));
  set = good;
  set.dims[0].stride = std::numeric_limits<int64_t>::max();
  CHECK(Says(Check(set, kMiB), kInvalid, "2^63"));
}

TEST_CASE("a set ends where its region ends, to the byte", "[p2p]") {
  const StridedSet set = {1, 64, 16, {{{2, 4096}, {4, 1024}, {8, 128}}}};
  const uint64_t end = 64 + 4096 + 3 * 1024 + 7 * 128 + 16;
  CHECK(Check(set, end).ok());
  CHECK(Says(Check(set, end - 1), kOutOfRange, "region 1 has " + std::to_string(end - 1)));
  StridedSet far = set;
  far.base = std::numeric_limits<uint64_t>::max() - 5;
  CHECK(Check(far, kMiB).code() == kOutOfRange);
  CHECK(Check(Descriptor{1, 10, 6}, 16).ok());
  CHECK(Says(Check(Descriptor{1, 10, 7}, 16), kOutOfRange, "16 bytes"));
  CHECK(Check(Descriptor{1, std::numeric_limits<uint64_t>::max(), 2}, 16).code() == kOutOfRange);
  CHECK(Says(Check(Descriptor{1, 4, 0}, 16), kInvalid, "0 bytes"));
}

TEST_CASE("sections name what is wrong with them", "[p2p]") {
  const Section good = MakeSection({Line(1, 0, 8, 4, 8), Line(3, 0, 8, 4, 8)}, {{1, 32}, {3, 32}});
  REQUIRE(Check(good).ok());
  Section bad = good;
  bad.name.clear();
  CHECK(Says(Check(bad), kInvalid, "name has 0 bytes"));
  bad = good;
  bad.sets.clear();
  CHECK(Says(Check(bad), kInvalid, "0 strided sets"));
  bad = good;
  bad.sets.resize(kSectionSetsMax + 1, good.sets[0]);
  CHECK(Says(Check(bad), kInvalid, "1025 strided sets"));
  bad = good;
  bad.sets[1].region = 2;
  CHECK(Says(Check(bad), kInvalid, "names region 2"));
  bad = good;
  std::swap(bad.regions[0], bad.regions[1]);
  CHECK(Says(Check(bad), kInvalid, "rising"));
  bad = good;
  bad.regions.push_back({9, 5});
  CHECK(Says(Check(bad), kInvalid, "no set is in its region 9"));
  bad = good;
  bad.regions[1].bytes = 31;
  CHECK(Says(Check(bad), kOutOfRange, "region 3"));
  bad = MakeSection({Line(1, 0, 1, kPiecesMax, 1), Line(1, 0, 1, 1, 0)}, {{1, kPiecesMax}});
  CHECK(Says(Check(bad), kInvalid, "pieces"));
  bad = MakeSection({Line(1, 0, uint64_t{1} << 61, 1, 0), Line(1, 0, uint64_t{1} << 61, 1, 0),
                     Line(1, 0, 1, 1, 0)},
                    {{1, uint64_t{1} << 61}});
  CHECK(Says(Check(bad), kInvalid, "2^62 bytes"));
}

TEST_CASE("pieces that a list lacks are refused by number", "[p2p]") {
  const auto list = Blocks(10, 8);
  const uint64_t ids[] = {3, 9, 10, 4};
  CHECK(Says(Selection::Ids(list, absl::MakeConstSpan(ids)).status(), kOutOfRange, "id 2 is 10"));
  const uint64_t wrapped[] = {(uint64_t{1} << 32) + 1};  // 1, if it were cut to 32 bits
  CHECK(Selection::Ids(list, absl::MakeConstSpan(wrapped)).status().code() == kOutOfRange);
  const uint32_t pairs[] = {4};
  CHECK(Selection::Ids(list, absl::MakeConstSpan(pairs), {2, 1, 0}).ok());
  CHECK(Selection::Ids(list, absl::MakeConstSpan(pairs), {3, 1, 0}).status().code() == kOutOfRange);
  CHECK(Selection::Ids(list, absl::MakeConstSpan(pairs), {1, 6, 1}).ok());
  CHECK(Says(Selection::Ids(list, absl::MakeConstSpan(pairs), {1, 7, 1}).status(), kOutOfRange,
             "repeated 7 times"));
  CHECK(Selection::Ids(list, absl::MakeConstSpan(pairs), {1, UINT64_MAX, UINT64_MAX})
            .status()
            .code() == kOutOfRange);
  CHECK(Says(Selection::Ids(list, absl::MakeConstSpan(pairs), {0, 1, 0}).status(), kInvalid,
             "0 pieces"));
  CHECK(Says(Selection::Ids(list, absl::Span<const uint32_t>()).status(), kInvalid, "no ids"));
  const Run runs[] = {{0, 5, 2}, {1, 5, 2}, {2, 5, 2}};
  CHECK(Selection::Runs(list, absl::MakeConstSpan(runs, 2)).ok());
  CHECK(Says(Selection::Runs(list, runs).status(), kOutOfRange, "run 2 (first 2"));
  const Run endless{0, UINT64_MAX, UINT64_MAX};
  CHECK(Selection::Runs(list, absl::MakeConstSpan(&endless, 1)).status().code() == kOutOfRange);
  const Run standing{0, 2, 0};
  CHECK(Says(Selection::Runs(list, absl::MakeConstSpan(&standing, 1)).status(), kInvalid, "step"));
}

TEST_CASE("descriptors are refused by number", "[p2p]") {
  const RegionExtent regions[] = {{1, 100}, {2, 50}};
  const Descriptor leaves[] = {{1, 0, 100}, {2, 40, 11}};
  CHECK(Says(Selection::Raw(0, regions, leaves).status(), kOutOfRange, "descriptor 1"));
  const Descriptor unknown[] = {{3, 0, 1}};
  CHECK(Says(Selection::Raw(0, regions, unknown).status(), absl::StatusCode::kNotFound,
             "descriptor 0 names region 3"));
  const RegionExtent disordered[] = {{2, 50}, {1, 100}};
  CHECK(Says(Selection::Raw(0, disordered, leaves).status(), kInvalid, "rising"));
  CHECK(Says(Selection::Raw(0, regions, {}).status(), kInvalid, "no descriptors"));
}

TEST_CASE("sides that differ in their bytes are refused with both numbers", "[p2p]") {
  const auto plan =
      TransferPlan::Make(*Selection::All(Blocks(10, 8)), *Selection::All(Blocks(9, 9, 1)));
  CHECK(Says(plan.status(), kInvalid, "the source has 80 bytes, the destination 81"));
}

TEST_CASE("overlap is refused with the place", "[p2p]") {
  const auto list = Blocks(1000, 8), elsewhere = Blocks(1000, 8, 1);
  const uint32_t twice[] = {5, 900, 5}, once[] = {5, 900, 6}, shared[] = {7, 900, 8};
  const auto ids = [](auto& of, auto& numbers) {
    return *Selection::Ids(of, absl::MakeConstSpan(numbers));
  };
  CHECK(
      Says(TransferPlan::Make(ids(elsewhere, once), ids(list, twice)).status(), kInvalid, "id 5"));
  CHECK(TransferPlan::Make(ids(list, twice), ids(elsewhere, once)).ok());  // read twice
  CHECK(Says(TransferPlan::Make(ids(list, once), ids(list, shared)).status(), kInvalid,
             "id 900 is in both"));
  CHECK(Says(TransferPlan::Make(ids(list, once), ids(list, once)).status(), kInvalid,
             "source and destination overlap"));
  // The same region, named by another list.
  const auto other = Blocks(1000, 8);
  CHECK(Says(TransferPlan::Make(ids(list, once), ids(other, shared)).status(), kInvalid,
             "region 1, offset 7200"));
}

TEST_CASE("interleaved tensors are known to be apart, whatever their number of blocks", "[p2p]") {
  // Keys and values of a block side by side, 64 layers of them.
  std::vector<StridedSet> sets;
  constexpr uint64_t kBlocks = 100'000, kBytes = 16 << 10, kLayer = kBlocks * 2 * kBytes;
  for (uint64_t layer = 0; layer < 64; ++layer) {
    sets.push_back(Line(1, layer * kLayer, kBytes, kBlocks, 2 * kBytes));
    sets.push_back(Line(1, layer * kLayer + kBytes, kBytes, kBlocks, 2 * kBytes));
  }
  CHECK((*PreparedList::Prepare(MakeSection(sets, {{1, 64 * kLayer}}), 0))->disjoint());
  // Layers side by side in each block, numbered layer by layer.
  sets = {{1, 0, 64, {{{1, 0}, {32, 64}, {kBlocks, 32 * 64}}}}};
  CHECK((*PreparedList::Prepare(MakeSection(sets, {{1, kBlocks * 32 * 64}}), 0))->disjoint());
  sets.push_back(Line(1, 63, 2, 1, 0));
  CHECK_FALSE((*PreparedList::Prepare(MakeSection(sets, {{1, kBlocks * 32 * 64}}), 0))->disjoint());
}

TEST_CASE("what sets cost to be told apart is bounded for all of them together", "[p2p]") {
  // Each set has a remainder of its own, so no two share a byte; but their strides are so near to
  // one another that nearly every step of a pair has to be looked at.
  constexpr uint64_t kUnit = 1 << 12, kSets = 256;
  std::vector<StridedSet> sets;
  for (uint64_t i = 0; i < kSets; ++i) {
    const auto stride = [&](uint64_t near) { return static_cast<int64_t>((near + i) * kUnit); };
    sets.push_back({1, i, 1, {{{4, stride(160'000)}, {4, stride(30'000)}, {4, stride(7'000)}}}});
  }
  uint32_t steps = 1 << 20;
  CHECK(SurelyDisjoint(sets[0], sets[1], &steps));
  const uint32_t taken = (1 << 20) - steps;
  CHECK(taken > 100);
  // No answer without enough steps, and no step beyond them.
  steps = taken;
  CHECK(SurelyDisjoint(sets[0], sets[1], &steps));
  CHECK(steps == 0);
  CHECK_FALSE(SurelyDisjoint(sets[0], sets[1], &steps));
  steps = taken - 1;
  CHECK_FALSE(SurelyDisjoint(sets[0], sets[1], &steps));
  CHECK(steps == 0);

  const std::vector<RegionExtent> regions = {{1, uint64_t{1} << 40}};
  const auto prepare = [&](size_t from, size_t to) {
    return *PreparedList::Prepare(MakeSection({sets.begin() + from, sets.begin() + to}, regions),
                                  0);
  };
  CHECK(prepare(0, 16)->disjoint());
  CHECK_FALSE(prepare(0, kSets)->disjoint());
  CHECK(prepare(0, 4)->SurelyApartFrom(*prepare(4, 8)));
  CHECK_FALSE(prepare(0, 32)->SurelyApartFrom(*prepare(32, 64)));
}

TEST_CASE("512 layers interleaved in one region are told apart", "[p2p]") {
  std::vector<StridedSet> sets;
  constexpr uint64_t kLayers = 512, kBytes = 64, kBlock = kLayers * kBytes;
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    sets.push_back({1, layer * kBytes, kBytes, {{{1, 0}, {10, 1000 * kBlock}, {1000, kBlock}}}});
  }
  CHECK((*PreparedList::Prepare(MakeSection(sets, {{1, 10'000 * kBlock}}), 0))->disjoint());
}

TEST_CASE("one byte in common is overlap, none is not", "[p2p]") {
  const std::vector<RegionExtent> regions = {{1, 100}};
  const StridedSet line = Line(1, 10, 8, 4, 8);
  for (const auto& [base, apart] : {std::pair(9, true), {10, false}, {41, false}, {42, true}}) {
    const StridedSet byte = Line(1, base, 1, 1, 0);
    CHECK((*PreparedList::Prepare(MakeSection({line, byte}, regions), 0))->disjoint() == apart);
    const auto a = *PreparedList::Prepare(MakeSection({line}, regions), 0);
    const auto b = *PreparedList::Prepare(MakeSection({byte}, regions), 0);
    CHECK(a->SurelyApartFrom(*b) == apart);
    CHECK(b->SurelyApartFrom(*a) == apart);
  }
}

TEST_CASE("sets that are told apart share no byte", "[p2p]") {
  int told = 0;
  for (int seed = 0; seed < 20'000; ++seed) {
    Shapes shapes(seed);
    const RegionExtent region{1, 700};
    const StridedSet a = shapes.Set(region);
    StridedSet b = shapes.Set(region);
    if (shapes.Chance(60)) {  // a neighbour that fits between
      const uint64_t base = b.base;
      b = a;
      b.base = shapes.Chance(50) ? base : a.base + a.length;
      if (Span(b) > region.bytes - std::min(b.base, region.bytes)) continue;
    }
    uint32_t steps = 1000;
    if (!SurelyDisjoint(a, b, &steps)) continue;
    ++told;
    Places in_a, in_b;
    for (uint64_t i = 0; i < PieceCount(a); ++i) {
      for (const Place& p : PieceOf(MakeSection({a}, {region}), i)) in_a.push_back(p);
    }
    for (uint64_t i = 0; i < PieceCount(b); ++i) {
      for (const Place& p : PieceOf(MakeSection({b}, {region}), i)) in_b.push_back(p);
    }
    INFO(Describe(a) << " / " << Describe(b));
    REQUIRE_FALSE(HaveCommon(in_a, in_b));
  }
  CHECK(told > 1000);
}

TEST_CASE("progressions meet exactly where they meet", "[p2p]") {
  for (int seed = 0; seed < 20'000; ++seed) {
    Shapes shapes(seed);
    const auto any = [&] {
      return Progression{shapes.Number(0, 60), shapes.Number(0, 12), shapes.Number(1, 15)};
    };
    const Progression a = any(), b = any();
    bool meet = false;
    for (uint64_t i = 0; i < a.count; ++i) {
      for (uint64_t k = 0; k < b.count; ++k) {
        meet |= a.first + i * a.step == b.first + k * b.step;
      }
    }
    INFO(a.first << " " << a.count << " " << a.step << " / " << b.first << " " << b.count << " "
                 << b.step);
    REQUIRE(Intersect(a, b) == meet);
  }
  // Two that first meet after a trillion steps.
  const uint64_t m = 1'000'003, n = 1'000'033;
  CHECK(Intersect({0, n, m}, {m * (n - 1), 2, n}));
  CHECK_FALSE(Intersect({0, n - 1, m}, {m * (n - 1), 2, n}));
}

TEST_CASE("any byte of a trillion pieces is found at once", "[p2p]") {
  // 2^40 pieces of 3 bytes in three dimensions; counts beyond 32 bits take the slow division.
  const StridedSet set = {1, 5, 3, {{{1 << 3, int64_t{1} << 43}, {1 << 4, 5}, {1ull << 33, 1000}}}};
  const auto list = *PreparedList::Prepare(MakeSection({set}, {{1, uint64_t{1} << 47}}), 0);
  const Selection all = *Selection::All(list);
  REQUIRE(all.payload_bytes() == 3 * kPiecesMax);
  const uint64_t wide_ids[] = {kPiecesMax - 1, 0, (uint64_t{1} << 37) + 12345};
  const Selection ids = *Selection::Ids(list, absl::MakeConstSpan(wide_ids));
  for (const uint64_t piece : {uint64_t{0}, kPiecesMax - 1, kPiecesMax / 3, uint64_t{1} << 33}) {
    const Cursor cursor(all, 3 * piece + 1, 1);
    CHECK(cursor.extent().offset == PieceOffset(set, piece) + 1);
    CHECK(cursor.extent().bytes == 1);
  }
  Cursor cursor(ids, 2, 7);
  for (const uint64_t piece : wide_ids) {
    const uint64_t skip = piece == wide_ids[0] ? 2 : 0;
    CHECK(cursor.extent().offset == PieceOffset(set, piece) + skip);
    CHECK(cursor.extent().bytes == 3 - skip);
    cursor.Advance(3 - skip);
  }
  CHECK(cursor.extent().bytes == 0);
}

TEST_CASE("tens of thousands of short runs in one list are told apart, or with the piece",
          "[p2p]") {
  const auto list = Blocks(100'000, 4096);
  constexpr uint64_t kRuns = 40'000;
  std::vector<Run> evens, odds;
  for (uint64_t i = 0; i < kRuns; ++i) {
    const uint64_t at = i * 7 % kRuns;  // each once, in no order
    evens.push_back({2 * at, 1, 1});
    odds.push_back({2 * at + 1, 1, 1});
  }
  const auto check = [&](const std::vector<Run>& from, const std::vector<Run>& to) {
    return TransferPlan::Make(*Selection::Runs(list, from), *Selection::Runs(list, to)).status();
  };
  CHECK(check(evens, odds).ok());
  std::vector<Run> twice = odds;
  twice[30'000] = twice[7];
  CHECK(Says(
      check(evens, twice), kInvalid,
      "piece " + std::to_string(twice[7].first) + " of section \"test\" is named more than once"));
  std::vector<Run> both = odds;
  both[5] = evens[39'999];
  CHECK(
      Says(check(evens, both), kInvalid, "piece " + std::to_string(both[5].first) + " is in both"));
  // Longer ones are as short as their steps are long.
  evens.push_back({90'000, 50, 3});
  odds.push_back({90'001, 50, 3});
  CHECK(check(evens, odds).ok());
  odds.back().first = 90'147;
  CHECK(Says(check(evens, odds), kInvalid, "piece 90147 is in both"));
}

TEST_CASE("a strided transfer of millions of blocks is checked without looking at them", "[p2p]") {
  const auto from = Blocks(uint64_t{1} << 38, 4096), to = from;
  const Run even{0, uint64_t{1} << 37, 2}, odd{1, uint64_t{1} << 37, 2}, third{3, 1 << 20, 3};
  const auto runs = [](auto& list, const Run& run) {
    return *Selection::Runs(list, absl::MakeConstSpan(&run, 1));
  };
  CHECK(TransferPlan::Make(runs(from, even), runs(to, odd)).ok());
  const Run some_odd{1, 1 << 20, 2};
  CHECK(TransferPlan::Make(runs(from, some_odd), runs(to, third)).status().code() == kInvalid);
}

TEST_CASE("what can't be told without listing too much is refused", "[p2p]") {
  // Two lists of one region, too different to be held against each other.
  const uint64_t bytes = uint64_t{1} << 40;
  const auto a = *PreparedList::Prepare(MakeSection({Line(1, 0, 1, 1 << 24, 6)}, {{1, bytes}}), 0);
  const auto b = *PreparedList::Prepare(MakeSection({Line(1, 1, 1, 1 << 24, 3)}, {{1, bytes}}), 0);
  CHECK(TransferPlan::Make(*Selection::All(a), *Selection::All(b)).status().code() ==
        absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace shunt::p2p
