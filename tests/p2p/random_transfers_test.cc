// Random transfers against lists of all their bytes.
#include <catch2/catch.hpp>
#include <string>

#include "runtime/p2p/copier.h"
#include "runtime/p2p/message_copy.h"
#include "tests/p2p/memories.h"
#include "tests/p2p/reference.h"

namespace shunt::p2p {
namespace {

constexpr int kTransfers = 4000;

struct Pair {
  Side source, destination;
};

// Two sides of equally many bytes.
Pair RandomPair(Shapes& shapes, Space from, Space to, const std::vector<RegionExtent>& regions) {
  const uint64_t kind = shapes.Number(0, 4);
  if (kind == 0) {
    const uint64_t small = shapes.Number(1, 16), times = shapes.Number(1, 8);
    const uint64_t bytes = small * times * shapes.Number(1, 30);
    Side a = shapes.Blocks(from, regions[0], small, bytes);
    Side b = shapes.Blocks(to, regions[1], small * times, bytes);
    if (shapes.Chance(50)) return {std::move(a), std::move(b)};
    return {shapes.Blocks(from, regions[1], small * times, bytes),
            shapes.Blocks(to, regions[shapes.Number(0, 1)], small, bytes)};
  }
  auto list = *PreparedList::Prepare(shapes.ASection(regions), kind % 2 == 0 ? from : to);
  Side listed = shapes.OfList(list);
  if (kind >= 3) {
    // The other side names pieces of the same list, or of one like it.
    auto other = shapes.Chance(50) && from == to
                     ? list
                     : *PreparedList::Prepare(list->section(), kind % 2 == 0 ? to : from);
    for (int i = 0; i < 40; ++i) {
      Side side = shapes.OfList(other);
      if (side.places.size() != listed.places.size()) continue;
      if (kind % 2 == 0) return {std::move(listed), std::move(side)};
      return {std::move(side), std::move(listed)};
    }
  }
  const Space raw_space = kind % 2 == 0 ? to : from;
  Side raw = shapes.Raw(raw_space, regions, listed.places.size());
  if (kind % 2 == 0) return {std::move(listed), std::move(raw)};
  return {std::move(raw), std::move(listed)};
}

TestMemory RandomMemory(Shapes& shapes) {
  TestMemory memory;
  for (const uint64_t id : {3, 7, 8}) {
    for (std::byte& byte : memory.Add(id, 6000)) {
      byte = static_cast<std::byte>(shapes.Number(0, 255));
    }
  }
  return memory;
}

std::byte At(TestMemory& memory, const Place& place) {
  return memory.at(place.first)[place.second];
}

TEST_CASE("what is refused overlaps, and what is copied arrives byte by byte", "[p2p]") {
  int copied = 0, written_twice = 0, both = 0;
  for (int seed = 0; seed < kTransfers; ++seed) {
    Shapes shapes(seed);
    INFO("seed " << seed);
    TestMemory near = RandomMemory(shapes), far = RandomMemory(shapes);
    const bool one_space = shapes.Chance(60);
    const Pair pair = RandomPair(shapes, 0, one_space ? 0 : 1, near.Extents());
    TestMemory& to = one_space ? near : far;
    const Places &reads = pair.source.places, &writes = pair.destination.places;
    REQUIRE(reads.size() == writes.size());
    REQUIRE(pair.source.selection.payload_bytes() == reads.size());
    const bool twice = HasTwice(writes);
    const bool common = one_space && HaveCommon(reads, writes);

    const auto plan = TransferPlan::Make(pair.source.selection, pair.destination.selection);
    INFO(plan.status().ToString());
    REQUIRE(plan.ok() == (!twice && !common));
    if (!plan.ok()) {
      CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
      ++(twice ? written_twice : both);
      continue;
    }
    TestMemory expected = to;
    for (size_t i = 0; i < reads.size(); ++i) {
      expected.at(writes[i].first)[writes[i].second] = At(near, reads[i]);
    }
    CopyOptions options;
    options.chunk_bytes = shapes.Number(1, 300);
    const auto copier = *Copier::Make(*plan, near, to, options);
    CHECK(copier->Wait() == Outcome::kCopied);
    for (const RegionExtent& region : near.Extents()) {
      REQUIRE(to.at(region.id) == expected.at(region.id));
    }
    ++copied;
  }
  // The shapes reach every outcome often enough to mean something.
  CHECK(copied > kTransfers / 4);
  CHECK(written_twice > kTransfers / 20);
  CHECK(both > kTransfers / 20);
}

TEST_CASE("copy runs of any part of the payload are those of its bytes", "[p2p]") {
  for (int seed = 0; seed < kTransfers / 4; ++seed) {
    Shapes shapes(seed + 100'000);
    INFO("seed " << seed);
    TestMemory memory = RandomMemory(shapes);
    const Pair pair = RandomPair(shapes, 0, 1, memory.Extents());
    const auto plan = TransferPlan::Make(pair.source.selection, pair.destination.selection);
    if (!plan.ok()) continue;
    const Places &reads = pair.source.places, &writes = pair.destination.places;
    for (int part = 0; part < 8; ++part) {
      const uint64_t begin = shapes.Number(0, reads.size());
      const uint64_t bytes = shapes.Number(0, reads.size() - begin);
      PlanCursor cursor(**plan, begin, bytes);
      uint64_t at = begin;
      CopyRun run, last;
      for (bool first = true; cursor.Next(&run); first = false) {
        const uint64_t from = (*plan)->source().regions()[run.source_region].id;
        const uint64_t to = (*plan)->destination().regions()[run.destination_region].id;
        REQUIRE(at + run.bytes <= begin + bytes);
        for (uint64_t i = 0; i < run.bytes; ++i, ++at) {
          REQUIRE(Place(from, run.source_offset + i) == reads[at]);
          REQUIRE(Place(to, run.destination_offset + i) == writes[at]);
        }
        // Neighbours on both sides are one run.
        if (!first && run.source_region == last.source_region &&
            run.destination_region == last.destination_region) {
          REQUIRE_FALSE((run.source_offset == last.source_offset + last.bytes &&
                         run.destination_offset == last.destination_offset + last.bytes));
        }
        last = run;
      }
      REQUIRE(at == begin + bytes);
    }
  }
}

TEST_CASE("a message holds any slice of the payload, and brings it back", "[p2p]") {
  for (int seed = 0; seed < kTransfers / 4; ++seed) {
    Shapes shapes(seed + 200'000);
    INFO("seed " << seed);
    TestMemory from = RandomMemory(shapes), to = RandomMemory(shapes);
    auto list = *PreparedList::Prepare(shapes.ASection(from.Extents()), 0);
    const Side side = shapes.Chance(70) ? shapes.OfList(list)
                                        : shapes.Raw(0, from.Extents(), shapes.Number(1, 900));
    const Places& places = side.places;
    const uint64_t begin = shapes.Number(0, places.size());
    std::vector<std::byte> message(shapes.Number(0, places.size() - begin));
    const StorePolicy policy = shapes.Chance(50) ? StorePolicy::kStreaming : StorePolicy::kTemporal;
    Gather(side.selection, *FindBases(side.selection, from), begin, absl::MakeSpan(message),
           policy);
    for (size_t i = 0; i < message.size(); ++i) {
      REQUIRE(message[i] == At(from, places[begin + i]));
    }
    if (HasTwice(places)) continue;
    TestMemory expected = to;
    for (size_t i = 0; i < message.size(); ++i) {
      const Place& place = places[begin + i];
      expected.at(place.first)[place.second] = message[i];
    }
    Scatter(side.selection, *FindBases(side.selection, to), begin, message, policy);
    for (const RegionExtent& region : to.Extents()) {
      REQUIRE(to.at(region.id) == expected.at(region.id));
    }
  }
}

}  // namespace
}  // namespace shunt::p2p
