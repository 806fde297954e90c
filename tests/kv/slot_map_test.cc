// A tier's slots against a model that is too simple to be wrong.
#include "runtime/kv/slot_map.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

namespace shunt::tiers::testing {
namespace {

using Slots = std::vector<uint32_t>;

uint32_t Put(SlotMap& map, const std::string& key, bool dirty = false, uint64_t bytes = 1) {
  const auto slot = map.Reserve(key);
  REQUIRE(slot);
  map.Fill(*slot, bytes, 0, dirty);
  return *slot;
}

TEST_CASE("the least recently used block is given up first") {
  SlotMap map(3);
  const uint32_t a = Put(map, "a"), b = Put(map, "b"), c = Put(map, "c");
  CHECK(map.Oldest(9, false) == Slots{a, b, c});
  map.Touch(a);
  CHECK(map.Oldest(9, false) == Slots{b, c, a});
  CHECK(map.Oldest(1, false) == Slots{b});
  CHECK_FALSE(map.Reserve("d"));
}

TEST_CASE("only what may be given up is") {
  SlotMap map(3);
  const uint32_t a = Put(map, "a");
  Put(map, "b");
  const uint32_t c = Put(map, "c");
  CHECK(map.Oldest(9, false, [](const Block& block) { return block.key != "b"; }) == Slots{a, c});
}

TEST_CASE("a pinned slot is not given up") {
  SlotMap map(2);
  const uint32_t a = Put(map, "a"), b = Put(map, "b");
  map.Pin(a);
  map.Pin(a);
  CHECK(map.Oldest(9, false) == Slots{b});
  map.Doom(a);
  CHECK_FALSE(map.Find("a"));
  CHECK(map.Doomed().empty());
  CHECK_FALSE(map.Unpin(a));
  CHECK(map.Unpin(a));
  CHECK(map.Doomed() == Slots{a});
  CHECK_FALSE(map.Reserve("c"));
  map.Free(a);
  CHECK(map.Reserve("c") == a);
}

TEST_CASE("a doomed slot is un-named while it is pinned, and named again with its next block") {
  SlotMap map(1);
  const uint32_t a = Put(map, "a");
  map.Pin(a);
  CHECK(map.StillNamed().empty());
  map.Doom(a);
  CHECK(map.StillNamed() == Slots{a});
  map.SetUnnamed(a);
  CHECK(map.StillNamed().empty());
  CHECK(map.Doomed().empty());
  CHECK(map.Unpin(a));
  CHECK(map.Doomed() == Slots{a});
  map.Free(a);
  CHECK(Put(map, "b") == a);
  map.Doom(a);
  CHECK(map.StillNamed() == Slots{a});
}

TEST_CASE("a block that was written down keeps its place in the order") {
  SlotMap map(3);
  const uint32_t a = Put(map, "a", true), b = Put(map, "b", false), c = Put(map, "c", true);
  CHECK(map.Oldest(9, true) == Slots{a, c});
  map.SetDirty(a, false);
  CHECK(map.Oldest(9, false) == Slots{a, b});
  map.SetDirty(c, false);
  CHECK(map.Oldest(9, false) == Slots{a, b, c});
}

TEST_CASE("a block that is being filled is not found, and its slot can be given back") {
  SlotMap map(1);
  const auto slot = map.Reserve("a");
  CHECK_FALSE(map.Find("a"));
  CHECK(map.Filling("a"));
  map.Abandon(*slot);
  CHECK_FALSE(map.Filling("a"));
  CHECK(map.counts().free == 1);
}

TEST_CASE("a slot's generation tells its blocks apart") {
  SlotMap map(1);
  const uint32_t a = Put(map, "a");
  const uint64_t before = map.generation(a);
  map.Doom(a);
  map.Free(a);
  CHECK(Put(map, "a") == a);
  CHECK(map.generation(a) != before);
}

// Keys in the order of their use, and what each is.
struct Model {
  struct Entry {
    std::string key;
    uint32_t slot;
    uint64_t bytes;
    bool dirty;
    uint32_t pins = 0;
  };
  std::vector<Entry> order;  // the least recent first
  Entry* Find(const std::string& key) {
    for (Entry& e : order) {
      if (e.key == key) return &e;
    }
    return nullptr;
  }
  void Touch(const std::string& key) {
    auto at = std::find_if(order.begin(), order.end(), [&](auto& e) { return e.key == key; });
    std::rotate(at, at + 1, order.end());
  }
  Slots Oldest(bool dirty) const {
    Slots slots;
    for (const Entry& e : order) {
      if (e.dirty == dirty && e.pins == 0) slots.push_back(e.slot);
    }
    return slots;
  }
};

TEST_CASE("random use is as in the model") {
  std::mt19937_64 random(GENERATE(1, 2, 3, 4));
  constexpr uint32_t kSlots = 12;
  SlotMap map(kSlots);
  Model model;
  std::map<std::string, uint32_t> filling;
  std::map<uint32_t, uint32_t> doomed;  // slot, pins
  for (int step = 0; step < 20'000; ++step) {
    const std::string key(1, static_cast<char>('a' + random() % 24));
    Model::Entry* entry = model.Find(key);
    switch (random() % 9) {
      case 0:
      case 1:
        if (entry != nullptr || filling.contains(key)) break;
        if (const auto slot = map.Reserve(key)) filling[key] = *slot;
        break;
      case 2:
        if (filling.empty()) break;
        {
          const auto [name, slot] = *filling.begin();
          filling.erase(name);
          if (random() % 4 == 0) {
            map.Abandon(slot);
            break;
          }
          const bool dirty = random() % 2 == 0;
          map.Fill(slot, step, 7, dirty);
          model.order.push_back({name, slot, static_cast<uint64_t>(step), dirty});
        }
        break;
      case 3:
        if (entry == nullptr) break;
        map.Touch(entry->slot);
        model.Touch(key);
        break;
      case 4:
        if (entry == nullptr) break;
        entry->dirty = !entry->dirty;
        map.SetDirty(entry->slot, entry->dirty);
        break;
      case 5:
        if (entry == nullptr) break;
        ++entry->pins;
        map.Pin(entry->slot);
        break;
      case 6:
        if (entry != nullptr && entry->pins > 0) {
          --entry->pins;
          REQUIRE_FALSE(map.Unpin(entry->slot));
        } else if (!doomed.empty() && doomed.begin()->second > 0) {
          REQUIRE(map.Unpin(doomed.begin()->first) == (--doomed.begin()->second == 0));
        }
        break;
      case 7:
        if (entry == nullptr) break;
        map.Doom(entry->slot);
        doomed[entry->slot] = entry->pins;
        std::erase_if(model.order, [&](auto& e) { return e.key == key; });
        break;
      default:
        for (const uint32_t slot : map.Doomed()) {
          REQUIRE(doomed.at(slot) == 0);
          map.Free(slot);
          doomed.erase(slot);
        }
    }
    uint64_t bytes = 0;
    for (const auto& e : model.order) {
      bytes += e.bytes;
      REQUIRE(map.Find(e.key) == e.slot);
      REQUIRE(map.block(e.slot) == Block{e.key, e.bytes, 7});
    }
    for (const auto& [name, slot] : filling) REQUIRE((map.Filling(name) && !map.Find(name)));
    REQUIRE(map.Oldest(kSlots, false) == model.Oldest(false));
    REQUIRE(map.Oldest(kSlots, true) == model.Oldest(true));
    const SlotMap::Counts counts = map.counts();
    REQUIRE(counts.clean + counts.dirty == model.order.size());
    REQUIRE(counts.filling == filling.size());
    REQUIRE(counts.doomed == doomed.size());
    REQUIRE(counts.free + counts.filling + counts.clean + counts.dirty + counts.doomed == kSlots);
    REQUIRE(counts.held_bytes == bytes);
  }
}

}  // namespace
}  // namespace shunt::tiers::testing
