// The cache of registrations, with a card that only counts.
#include "runtime/transport/ucx/registrations.h"

#include <catch2/catch.hpp>
#include <map>
#include <vector>

namespace shunt::transport::testing {
namespace {

struct Card {
  std::map<void*, std::pair<std::byte*, size_t>> registered;
  uintptr_t next = 0;
  bool refuses = false;

  Registrations::Card Hooks() {
    return {.add = [this](std::byte* at, size_t bytes) -> void* {
              if (refuses) return nullptr;
              void* handle = reinterpret_cast<void*>(++next);
              registered[handle] = {at, bytes};
              return handle;
            },
            .remove = [this](void* handle) { REQUIRE(registered.erase(handle) == 1); }};
  }
};

constexpr Registrations::Options kSmall{
    .bytes_max = 1000, .entries_max = 8, .block_bytes = 100, .overlap_bytes = 50};

TEST_CASE("a range lies in the block that it begins in, registered once") {
  Card card;
  Registrations cache(kSmall, card.Hooks());
  std::vector<std::byte> memory(320);
  REQUIRE(cache.Add(absl::MakeSpan(memory)).ok());
  for (size_t at = 0; at + 50 <= memory.size(); ++at) {
    Registrations::Entry* entry = cache.Acquire(memory.data() + at, 50);
    REQUIRE(entry != nullptr);
    const auto [begin, bytes] = card.registered.at(entry->handle);
    REQUIRE(begin <= memory.data() + at);
    REQUIRE(begin + bytes >= memory.data() + at + 50);
    REQUIRE(begin + bytes <= memory.data() + memory.size());
    cache.Release(entry);
  }
  CHECK(cache.counters().misses == 3);
  CHECK(cache.counters().hits == 271 - 3);
  CHECK(cache.counters().entries == 3);
  CHECK(cache.counters().bytes == 150 + 150 + 120);
}

TEST_CASE("memory that nobody added is not registered") {
  Card card;
  Registrations cache(kSmall, card.Hooks());
  std::vector<std::byte> memory(300);
  REQUIRE(cache.Add(absl::MakeSpan(memory).subspan(100, 100)).ok());
  CHECK(cache.Acquire(memory.data() + 99, 10) == nullptr);
  CHECK(cache.Acquire(memory.data() + 191, 10) == nullptr);
  CHECK(cache.Acquire(memory.data() + 200, 1) == nullptr);
  CHECK(cache.Acquire(memory.data() + 100, 51) == nullptr);  // more than the overlap
  CHECK(card.registered.empty());
  CHECK(cache.Add(absl::MakeSpan(memory).subspan(199, 2)).code() ==
        absl::StatusCode::kAlreadyExists);
  CHECK(cache.Add(absl::MakeSpan(memory).subspan(0, 101)).code() ==
        absl::StatusCode::kAlreadyExists);
  CHECK(cache.Add(absl::MakeSpan(memory).subspan(200, 100)).ok());
}

TEST_CASE("the block that was used longest ago goes, and none that is in use") {
  Card card;
  Registrations cache({.bytes_max = 300, .entries_max = 8, .block_bytes = 100, .overlap_bytes = 50},
                      card.Hooks());
  std::vector<std::byte> memory(1000);
  REQUIRE(cache.Add(absl::MakeSpan(memory)).ok());
  const auto use = [&](size_t block) { return cache.Acquire(memory.data() + block * 100, 10); };
  Registrations::Entry* first = use(0);
  Registrations::Entry* second = use(1);
  CHECK(use(2) == nullptr);  // both are in use
  CHECK(cache.counters().full == 1);
  cache.Release(second);
  cache.Release(first);
  cache.Release(use(1));  // so the first is the older one
  Registrations::Entry* third = use(2);
  REQUIRE(third != nullptr);
  CHECK(cache.counters().evictions == 1);
  CHECK(cache.counters().bytes == 300);
  cache.Release(use(1));
  CHECK(cache.counters().misses == 4);  // it is still there
  cache.Release(third);
}

TEST_CASE("entries are bounded, too, and a card that refuses is counted") {
  Card card;
  Registrations::Options options = kSmall;
  options.entries_max = 2;
  Registrations cache(options, card.Hooks());
  std::vector<std::byte> memory(1000);
  REQUIRE(cache.Add(absl::MakeSpan(memory)).ok());
  for (size_t block = 0; block < 9; ++block) {
    Registrations::Entry* entry = cache.Acquire(memory.data() + block * 100, 1);
    REQUIRE(entry != nullptr);
    cache.Release(entry);
    REQUIRE(card.registered.size() <= 2);
  }
  card.refuses = true;
  CHECK(cache.Acquire(memory.data(), 1) == nullptr);
  CHECK(cache.counters().failures == 1);
}

TEST_CASE("removed memory is registered no longer, unless it is in use") {
  Card card;
  {
    Registrations cache(kSmall, card.Hooks());
    std::vector<std::byte> memory(200), other(200);
    REQUIRE(cache.Add(absl::MakeSpan(memory)).ok());
    REQUIRE(cache.Add(absl::MakeSpan(other)).ok());
    cache.Release(cache.Acquire(other.data(), 1));
    cache.Release(cache.Acquire(memory.data(), 1));
    Registrations::Entry* entry = cache.Acquire(memory.data() + 100, 1);
    CHECK(cache.Remove(memory.data()).code() == absl::StatusCode::kFailedPrecondition);
    cache.Release(entry);
    CHECK(cache.Remove(memory.data()).ok());
    CHECK(card.registered.size() == 1);
    CHECK(cache.Acquire(memory.data(), 1) == nullptr);
    CHECK(cache.Remove(memory.data()).code() == absl::StatusCode::kNotFound);
  }
  CHECK(card.registered.empty());
}

}  // namespace
}  // namespace shunt::transport::testing
