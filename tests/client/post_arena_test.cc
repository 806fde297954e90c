#include "client/src/post_arena.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace shunt::client {
namespace {

constexpr size_t kRegionBytes = 4096;

// Regions from the heap, counted.
class FakeRegions {
 public:
  PostArena Arena() {
    return PostArena(
        kRegionBytes,
        [this](size_t bytes) -> absl::StatusOr<PostArena::Region> {
          if (refuse) return absl::ResourceExhaustedError("quota");
          auto data = std::make_unique<std::byte[]>(bytes);
          const PostArena::Region region{next++, data.get(), bytes};
          live[region.id] = std::move(data);
          return region;
        },
        [this](const PostArena::Region& region) { CHECK(live.erase(region.id) == 1); });
  }
  std::map<uint64_t, std::unique_ptr<std::byte[]>> live;
  uint64_t next = 1;
  bool refuse = false;
};

PostArena::Block Take(PostArena& arena, size_t bytes) {
  auto block = arena.Take(bytes);
  REQUIRE(block.ok());
  CHECK(block->bytes >= bytes);
  CHECK(block->offset % 64 == 0);
  std::memset(block->data, 1, bytes);
  return *block;
}

TEST_CASE("nothing is allocated before the first block") {
  FakeRegions regions;
  PostArena arena = regions.Arena();
  CHECK(regions.live.empty());
  const auto block = Take(arena, 100);
  CHECK(regions.live.count(block.region) == 1);
  CHECK(block.data == regions.live[block.region].get() + block.offset);
}

TEST_CASE("freed blocks are used again, joined with their neighbours") {
  FakeRegions regions;
  PostArena arena = regions.Arena();
  std::vector<PostArena::Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(Take(arena, kRegionBytes / 4));
  // In an order in which each joins differently: alone, behind, before, between.
  for (const size_t i : {2, 0, 3, 1}) arena.Give(blocks[i]);
  const auto whole = Take(arena, kRegionBytes);
  CHECK(whole.offset == 0);
  CHECK(regions.live.size() == 1);
}

TEST_CASE("a block larger than a region gets one of its own, and what is empty makes room") {
  FakeRegions regions;
  PostArena arena = regions.Arena();
  arena.Give(Take(arena, 100));
  const auto large = Take(arena, 10 * kRegionBytes + 1);
  CHECK(large.bytes > 10 * kRegionBytes);
  CHECK(regions.live.size() == 1);  // the first one, too small, is gone
  const auto small = Take(arena, kRegionBytes);
  CHECK(small.region != 0);
}

TEST_CASE("a region that is in use is kept when another one is needed") {
  FakeRegions regions;
  PostArena arena = regions.Arena();
  const auto first = Take(arena, 64);
  const auto second = Take(arena, kRegionBytes);
  CHECK(first.region != second.region);
  CHECK(regions.live.size() == 2);
}

TEST_CASE("a refusal is the caller's error and spoils nothing") {
  FakeRegions regions;
  PostArena arena = regions.Arena();
  const auto first = Take(arena, 64);
  regions.refuse = true;
  CHECK(absl::IsResourceExhausted(arena.Take(2 * kRegionBytes).status()));
  CHECK(Take(arena, 64).region == first.region);
}

TEST_CASE("blocks never overlap, whatever is taken and given") {
  FakeRegions regions;
  PostArena arena = regions.Arena();
  std::mt19937 random(1);
  std::map<std::byte*, PostArena::Block> held;
  for (int i = 0; i < 5000; ++i) {
    if (held.empty() || random() % 2 == 0) {
      const auto block = Take(arena, 1 + random() % (i % 100 == 0 ? 3 * kRegionBytes : 700));
      const auto next = held.lower_bound(block.data);
      if (next != held.end()) CHECK(block.data + block.bytes <= next->first);
      if (next != held.begin()) {
        const auto& before = std::prev(next)->second;
        CHECK(before.data + before.bytes <= block.data);
      }
      held.emplace(block.data, block);
    } else {
      auto victim = held.begin();
      std::advance(victim, random() % held.size());
      arena.Give(victim->second);
      held.erase(victim);
    }
  }
}

}  // namespace
}  // namespace shunt::client
