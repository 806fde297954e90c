#include "runtime/memory/region_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "tests/support/fds.h"

namespace shunt::memory {
namespace {

constexpr Owner kOne{1, 1000};
constexpr Owner kTwo{2, 1000};
constexpr Owner kStranger{3, 2000};

bool Says(const absl::Status& status, std::string_view words) {
  INFO(status.ToString());
  return std::string(status.message()).find(words) != std::string::npos;
}

TEST_CASE("a region is whole pages, zeroed, sealed, and its id is never used again") {
  RegionTable table({});
  const auto region = *table.Allocate(kOne, 5000);
  CHECK(region->id() == 1);
  CHECK(region->bytes() == 8192);
  CHECK((::fcntl(region->fd(), F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) ==
        (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  CHECK(::ftruncate(region->fd(), 0) != 0);
  REQUIRE(table.Free(1, 1).ok());
  CHECK((*table.Allocate(kOne, 1))->id() == 2);
}

TEST_CASE("sizes of nothing and of everything are refused") {
  RegionTable table({});
  CHECK(table.Allocate(kOne, 0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(table.Allocate(kOne, UINT64_MAX).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(table.Allocate(kOne, UINT64_MAX - 4094).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("pointers are given only for what lies wholly inside") {
  RegionTable table({});
  const auto region = *table.Allocate(kOne, 8192);
  std::byte* base = *region->At(0, 8192);
  CHECK(*region->At(4096, 4096) == base + 4096);
  CHECK(region->At(8192, 0).ok());
  const struct {
    uint64_t offset, length;
  } outside[] = {{0, 8193},
                 {8192, 1},
                 {8193, 0},
                 {1, 8192},
                 {UINT64_MAX, 2},
                 {2, UINT64_MAX},
                 {UINT64_MAX, UINT64_MAX},
                 {UINT64_MAX - 1, 1},
                 {4096, UINT64_MAX - 4095}};
  for (const auto& range : outside) {
    const absl::Status status = region->At(range.offset, range.length).status();
    CHECK(status.code() == absl::StatusCode::kOutOfRange);
    CHECK(Says(status, std::to_string(range.offset)));
  }
}

TEST_CASE("each quota is named when it is full") {
  Quotas quotas;
  quotas.session_bytes = 3 * 4096;
  quotas.tenant_bytes = 4 * 4096;
  quotas.total_bytes = 5 * 4096;
  RegionTable table(quotas);
  REQUIRE(table.Allocate(kOne, 2 * 4096).ok());
  const absl::Status session = table.Allocate(kOne, 2 * 4096).status();
  CHECK(session.code() == absl::StatusCode::kResourceExhausted);
  CHECK(Says(session, "memory_per_session"));
  REQUIRE(table.Allocate(kTwo, 2 * 4096).ok());
  CHECK(Says(table.Allocate(kTwo, 1).status(), "memory_per_tenant"));
  REQUIRE(table.Allocate(kStranger, 4096).ok());
  CHECK(Says(table.Allocate(kStranger, 1).status(), "memory_total"));
  CHECK(table.total_bytes() == 5 * 4096);
  table.FreeAll(kTwo);
  CHECK(table.Allocate(kOne, 4096).ok());
}

TEST_CASE("memory that is no region counts too") {
  Quotas quotas;
  quotas.session_bytes = 8192;
  RegionTable table(quotas);
  REQUIRE(table.Charge(kOne, 8192, "ring").ok());
  CHECK(Says(table.Allocate(kOne, 1).status(), "memory_per_session"));
  table.Release(kOne, 8192);
  CHECK(table.Allocate(kOne, 1).ok());
}

TEST_CASE("a session reaches its own regions only, and does not learn what others have") {
  RegionTable table({});
  REQUIRE(table.Allocate(kOne, 1).ok());
  const absl::Status other = table.Find(2, 1).status();
  const absl::Status none = table.Find(2, 99).status();
  CHECK(other.code() == absl::StatusCode::kNotFound);
  CHECK(none.code() == absl::StatusCode::kNotFound);
  CHECK(table.Free(2, 1).code() == absl::StatusCode::kNotFound);
  CHECK(table.Use(2, 1, "x").status().code() == absl::StatusCode::kNotFound);
  CHECK(table.Find(1, 1).ok());
}

TEST_CASE("a region in use is not freed, and the error names the use") {
  RegionTable table({});
  REQUIRE(table.Allocate(kOne, 1).ok());
  {
    const RegionUse use = *table.Use(1, 1, "operation 42");
    const absl::Status status = table.Free(1, 1);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Says(status, "operation 42"));
  }
  CHECK(table.Free(1, 1).ok());
  CHECK(table.Free(1, 1).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("memory of an ended session lives until its operation ends, and no longer") {
  RegionTable table({});
  const int fds = testing::CountOpenFds();
  auto region = *table.Allocate(kOne, 4096);
  std::byte* data = *region->At(0, 4096);
  table.FreeAll(kOne);
  CHECK(table.total_bytes() == 0);
  std::memset(data, 1, 4096);  // would fault if it were unmapped
  CHECK(testing::CountOpenFds() == fds + 1);
  region.reset();
  CHECK(testing::CountOpenFds() == fds);
}

TEST_CASE("freeing tells who had mapped it") {
  RegionTable table({});
  REQUIRE(table.Allocate(kOne, 1).ok());
  REQUIRE(table.Allocate(kOne, 1).ok());
  table.RecordMapping(1, 7);
  table.RecordMapping(1, 7);
  table.RecordMapping(2, 8);
  std::vector<uint64_t> by;
  REQUIRE(table.Free(1, 1, &by).ok());
  CHECK(by == std::vector<uint64_t>{7});
  CHECK(table.FreeAll(kOne) == std::vector<uint64_t>{8});
}

TEST_CASE("threads that allocate, use and free at once leave nothing behind") {
  RegionTable table({});
  std::vector<std::thread> threads;
  for (uint64_t session = 1; session <= 4; ++session) {
    threads.emplace_back([&table, session] {
      const Owner owner{session, 5};
      for (int i = 0; i < 200; ++i) {
        const auto region = *table.Allocate(owner, 4096);
        { const auto use = *table.Use(session, region->id(), "test"); }
        if (i % 3 == 0) {
          if (!table.Free(session, region->id()).ok()) FAIL("not freed");
        } else if (i % 50 == 1) {
          table.FreeAll(owner);
        }
      }
      table.FreeAll(owner);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(table.region_count() == 0);
  CHECK(table.total_bytes() == 0);
}

TEST_CASE("who maps a region elsewhere hears when nobody uses it any more") {
  RegionTable table(Quotas{});
  int gone = 0;
  const uint64_t id = [&] {
    const auto region = *table.Allocate({.session = 1, .tenant = 0}, 4096);
    for (int i = 0; i < 2; ++i) region->OnGone([&gone] { ++gone; });
    return region->id();
  }();
  {
    const RegionUse use = *table.Use(1, id, "a copy");
    table.FreeAll({.session = 1, .tenant = 0});
    CHECK(table.FindAny(id) == nullptr);
    CHECK(gone == 0);
  }
  CHECK(gone == 2);
}

}  // namespace
}  // namespace shunt::memory
