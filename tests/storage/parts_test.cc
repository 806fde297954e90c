// The pure parts of stores, and the timers.
#include <poll.h>

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "runtime/core/clock.h"
#include "runtime/storage/budget.h"
#include "runtime/storage/coverage.h"
#include "runtime/storage/posix/leftovers.h"
#include "runtime/storage/posix/split.h"
#include "runtime/storage/timers.h"

namespace shunt::storage {
namespace {

TEST_CASE("coverage agrees with a set of bytes") {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    Coverage coverage;
    std::set<uint64_t> model;
    for (int i = 0; i < 40; ++i) {
      const uint64_t offset = random() % 60, bytes = random() % 8;
      bool free = true;
      for (uint64_t at = offset; at < offset + bytes; ++at) free &= !model.contains(at);
      REQUIRE(coverage.Add(offset, bytes) == free);
      if (free) {
        for (uint64_t at = offset; at < offset + bytes; ++at) model.insert(at);
      }
      REQUIRE(coverage.bytes() == model.size());
      uint64_t missing = 0;
      while (model.contains(missing)) ++missing;
      REQUIRE(coverage.first_missing() == missing);
    }
  }
}

TEST_CASE("a charge pays ahead, once, and gives all back with its end") {
  uint64_t held = 0, calls = 0;
  const Budget budget = [&](uint64_t bytes,
                            std::string_view) -> absl::StatusOr<std::shared_ptr<void>> {
    ++calls;
    if (held + bytes > 1 << 20) return absl::ResourceExhaustedError("no more");
    held += bytes;
    return std::shared_ptr<void>(nullptr, [&held, bytes](void*) { held -= bytes; });
  };
  {
    Charge charge(budget);
    CHECK(charge.Cover(1000, "x").ok());
    CHECK(calls == 0);  // so little is not counted
    uint64_t bytes = 0;
    while (charge.Cover(bytes += 64, "x").ok()) CHECK(held + (16 << 10) >= bytes);
    CHECK(bytes > 512 << 10);
    CHECK(calls < 20);
    const auto more = charge.Take(8, "x");
    CHECK(more.ok());
  }
  CHECK(held == 0);
  Charge nobody;
  CHECK(nobody.Cover(1 << 30, "x").ok());
}

TEST_CASE("a range is cut into every byte once, and no page is reached both ways") {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    Blocks blocks{
        .direct = true, .bytes = 4096u << random() % 3, .memory_align = 1u << random() % 10};
    // Two neighbouring ranges: what one reaches directly the other may not reach.
    std::map<uint64_t, bool> pages;
    uint64_t offset = random() % 20'000;
    for (int range = 0; range < 2; ++range) {
      uint64_t left = 1 + random() % 60'000;
      uintptr_t address = uintptr_t{1} << 30 | (random() % 5000);
      if (random() % 2 == 0) address += offset % 4096 - address % 4096;  // aligned with the file
      while (left > 0) {
        auto* const memory = reinterpret_cast<std::byte*>(address);
        const Cut cut = NextCut(blocks, offset, memory, left, 16 << 10);
        REQUIRE(cut.bytes > 0);
        REQUIRE(cut.bytes <= left);
        REQUIRE(cut.bytes <= std::max(uint32_t{16 << 10}, blocks.bytes));
        if (cut.direct) {
          REQUIRE(offset % blocks.bytes == 0);
          REQUIRE(cut.bytes % blocks.bytes == 0);
          REQUIRE(address % blocks.memory_align == 0);
        }
        for (uint64_t page = offset / 4096; page <= (offset + cut.bytes - 1) / 4096; ++page) {
          const auto [known, fresh] = pages.emplace(page, cut.direct);
          REQUIRE((fresh || (!known->second && !cut.direct)));
        }
        offset += cut.bytes;
        address += cut.bytes;
        left -= cut.bytes;
      }
    }
  }
}

TEST_CASE("aligned ranges go directly as a whole") {
  auto* const memory = reinterpret_cast<std::byte*>(uintptr_t{1} << 30);
  const Cut cut = NextCut({.direct = true}, 8192, memory, 128 << 10, 1 << 20);
  CHECK(cut.direct);
  CHECK(cut.bytes == 128 << 10);
  CHECK(!NextCut({.direct = false}, 8192, memory, 128 << 10, 1 << 20).direct);
}

TEST_CASE("only our own names are those of drafts") {
  const std::string name = MakeDraftName();
  CHECK(IsDraftName(name));
  CHECK(MakeDraftName() != name);
  CHECK(!IsDraftName(name + "0"));
  CHECK(!IsDraftName(name.substr(0, name.size() - 1) + "g"));
  CHECK(!IsDraftName("draft-"));
  CHECK(!IsDraftName("precious-0123456789abcdef0123456789abcdef"));
  CHECK(!IsDraftName(""));
}

TEST_CASE("timers come out in order, and their descriptor tells of the first") {
  auto timers = Timers::Make();
  REQUIRE(timers.ok());
  const auto readable = [&](int timeout_ms) {
    pollfd ready{.fd = timers->fd(), .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, timeout_ms) == 1;
  };
  const int64_t now = NowNs();
  uint64_t id = 0;
  timers->Set(1, now + 3'600'000'000'000);
  timers->Set(2, now + 1'000'000);
  timers->Set(3, std::numeric_limits<int64_t>::min());
  timers->Arm();
  REQUIRE(timers->PopDue(now, &id));
  CHECK(id == 3);
  CHECK(!timers->PopDue(now, &id));
  timers->Arm();
  REQUIRE(readable(20'000));
  REQUIRE(timers->PopDue(NowNs(), &id));
  CHECK(id == 2);
  timers->Arm();
  CHECK(!readable(0));
  timers->Set(1, 1);  // replaces
  timers->Arm();
  CHECK(readable(20'000));
  timers->Clear(1);
  timers->Arm();
  CHECK(!readable(0));
  CHECK(timers->empty());
}

}  // namespace
}  // namespace shunt::storage
