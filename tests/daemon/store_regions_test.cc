// Files of sessions: how many there may be, and what is left when their sessions end.
#include "daemon/transfer/store_regions.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>

#include "tests/support/temp_dir.h"

namespace shunt::daemon {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<StoreRegion>>;

struct World {
  explicit World(uint64_t of_user = 2, std::chrono::nanoseconds linger = std::chrono::seconds(5))
      : regions({.roots = {{"root", directory.path()}},
                 .user_regions = of_user,
                 .total_regions = 2,
                 .hosts = {.linger = linger}},
                &ids) {
    REQUIRE(regions.Start().ok());
    std::ofstream(directory / "f") << "content";
  }
  std::shared_ptr<Session> NewSession(uint32_t uid = 0) {
    return std::make_shared<Session>(++sessions, Peer{.pid = 1, .uid = uid, .pidfd = nullptr}, "s",
                                     Token{});
  }
  std::future<Opened> Begin(const std::shared_ptr<Session>& session,
                            const std::string& name = "f") {
    auto promise = std::make_shared<std::promise<Opened>>();
    regions.Open(session, {}, {.container = "root", .name = name}, {},
                 [promise](const Opened& opened) { promise->set_value(opened); });
    return promise->get_future();
  }
  void End(const std::shared_ptr<Session>& session) {
    session->ended.store(true);
    regions.SessionGone(session->id);
  }

  const shunt::testing::TempDir directory;
  memory::RegionTable ids{{}};
  uint64_t sessions = 0;
  StoreRegions regions;
};

TEST_CASE("files of all sessions are counted, and counted back") {
  World world;
  for (int round = 0; round < 3; ++round) {
    const auto first = world.NewSession(), second = world.NewSession();
    for (int i = 0; i < 5; ++i) {
      CHECK(world.Begin(first, "missing").get().status().code() == absl::StatusCode::kNotFound);
    }
    const auto region = world.Begin(first).get();
    REQUIRE(region.ok());
    REQUIRE(world.Begin(second).get().ok());
    const absl::Status full = world.Begin(second).get().status();
    CHECK(full.code() == absl::StatusCode::kResourceExhausted);
    CHECK(full.message().find(" 2 files and objects") != absl::string_view::npos);
    CHECK(world.regions.Free(first->id, (*region)->id).ok());
    CHECK(world.Begin(second).get().ok());
    world.End(first);
    world.End(second);
  }
}

TEST_CASE("one user's sessions have a share of all files, others' have the rest") {
  World world(1);
  const auto first = world.NewSession(1), second = world.NewSession(1), other = world.NewSession(2);
  const auto region = world.Begin(first).get();
  REQUIRE(region.ok());
  const absl::Status full = world.Begin(second).get().status();
  CHECK(full.code() == absl::StatusCode::kResourceExhausted);
  CHECK(full.message().find("user 1 has 1 files and objects") != absl::string_view::npos);
  CHECK(world.Begin(other).get().ok());
  world.End(first);
  CHECK(world.Begin(second).get().ok());
}

TEST_CASE("each user's files are in a store that ends with the user's last session") {
  World world(2, {});
  const auto first = world.NewSession(1), second = world.NewSession(1), other = world.NewSession(2);
  const auto a = *world.Begin(first).get();
  CHECK(world.Begin(second, "missing").get().status().code() == absl::StatusCode::kNotFound);
  const auto b = *world.Begin(other).get();
  CHECK(a->host != b->host);
  world.End(first);
  CHECK(a->host->serves());
  world.End(second);
  CHECK(!a->host->serves());
  CHECK(b->host->serves());
}

TEST_CASE("a session that ends while it opens a file gets none, and leaves none open") {
  World world;
  for (int round = 0; round < 100; ++round) {
    const auto session = world.NewSession();
    auto opened = world.Begin(session);
    world.End(session);
    const absl::Status status = opened.get().status();
    // Whichever came first; then it is closed again.
    CHECK((status.ok() || status.code() == absl::StatusCode::kCancelled));
    CHECK(world.Begin(session).get().status().code() == absl::StatusCode::kCancelled);
  }
  const auto session = world.NewSession();
  CHECK(world.Begin(session).get().ok());
  CHECK(world.Begin(session).get().ok());
}

TEST_CASE("memory and files have numbers of one kind") {
  World world;
  const auto session = world.NewSession();
  const auto file = world.Begin(session).get();
  const auto memory = world.ids.Allocate(session->owner(), 4096);
  REQUIRE(file.ok());
  REQUIRE(memory.ok());
  CHECK((*memory)->id() != (*file)->id);
  CHECK_FALSE(world.ids.Find(session->id, (*file)->id).ok());
  CHECK_FALSE(world.regions.Find(session->id, (*memory)->id()).ok());
  CHECK_FALSE(world.regions.Find(session->id + 1, (*file)->id).ok());
}

TEST_CASE("a stop closes everything, and opens nothing more") {
  World world;
  const auto session = world.NewSession();
  auto under_way = world.Begin(session);
  world.regions.Stop(kNeverNs);
  const absl::Status status = under_way.get().status();
  CHECK((status.ok() || status.code() == absl::StatusCode::kUnavailable));
  CHECK(world.Begin(session).get().status().code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace shunt::daemon
