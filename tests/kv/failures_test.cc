// What a store's user sees when disks, daemons and processes fail: words, or counted misses.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/kv/world.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;
using Tiers = std::vector<shunt_kv_tier>;

TestDaemon& Daemon() {
  static TestDaemon daemon;
  return daemon;
}

void Fill(const std::string& directory, int blocks) {
  StoreClient c(Daemon().socket(), WithFile(8, directory, 64));
  c.Put(Keys(0, blocks));
  c.store->Flush().Wait();
}

int64_t Count(const Tiers& tiers, shunt_kv_tier tier) {
  return std::count(tiers.begin(), tiers.end(), tier);
}

// Runs `body` in a process of its own, in which `path` is a file system of 1 MiB.
void OnSmallDisk(const std::string& path, const std::function<void()>& body) {
  constexpr int kMayNotMount = 77;
  (void)Daemon();
  Process child = Process::Fork([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", path.c_str(), "tmpfs", 0, "size=1m") != 0) {
      ::_exit(kMayNotMount);
    }
    body();
  });
  try {
    child.Join();
  } catch (const Wrong& wrong) {
    if (std::string(wrong.what()).find("status " + std::to_string(kMayNotMount << 8)) ==
        std::string::npos) {
      throw;
    }
    WARN("not tried: mounting needs root");
  }
}

void FillDisk(const std::string& path) {
  std::ofstream filler(path, std::ios::binary);
  const std::string page(4096, 'x');
  while (filler.write(page.data(), 4096) && filler.flush()) {
  }
}

// Puts and erases for ever; says in which round it is after each flush.
void PutForEver(const std::string& socket, const std::string& directory, int to) {
  StoreClient c(socket, WithFile(4, directory, 40));
  for (int round = 0;; ++round) {
    c.Put(Keys(round * 5, round * 5 + 5));
    if (round > 4) c.store->Erase(Views(Keys(round * 5 - 20, round * 5 - 18)));
    c.store->Flush().Wait();
    const auto byte = static_cast<char>(round);
    if (::write(to, &byte, 1) != 1) throw Wrong("nobody reads");
  }
}

TEST_CASE("a process that is killed while it puts leaves whole blocks, and all that it flushed") {
  for (int rounds = 1; rounds <= 12; ++rounds) {
    const TempDir dir;
    int fds[2];
    REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
    const std::string socket = Daemon().socket();
    Process child = Process::Fork([&] { PutForEver(socket, dir.path(), fds[1]); });
    ::close(fds[1]);
    char round = 0;
    for (int i = 0; i < rounds; ++i) REQUIRE(::read(fds[0], &round, 1) == 1);
    child.Signal(SIGKILL);
    child.Wait();
    while (::read(fds[0], &round, 1) == 1) {
    }
    ::close(fds[0]);

    StoreClient c(socket, WithFile(4, dir.path(), 40));
    // The two last rounds that were flushed: nothing has given them up yet.
    CHECK(Count(c.Get(Keys(std::max(0, round - 1) * 5, round * 5 + 5)), SHUNT_KV_NONE) == 0);
    for (int i = 0; i < (round + 2) * 5; i += 50)
      (void)c.Get(Keys(i, i + 50));  // right, or missing
    CHECK(c.Stats().corrupt == 0);
    c.Put(Keys(1000, 1030));
    c.store->Flush().Wait();
  }
}

TEST_CASE("when the daemon is killed calls end with UNAVAILABLE; a new one finds the blocks") {
  const TempDir dir;
  const auto keys = Keys(0, 30);
  {
    TestDaemon daemon;
    StoreClient c(daemon.socket(), WithFile(4, dir.path(), 64));
    c.Put(keys);
    c.store->Flush().Wait();
    kv::Call put = c.StartPut(Keys(100, 140));
    daemon.Kill();
    try {
      put.Wait();
    } catch (const Error& error) {
      CHECK(error.code() == SHUNT_UNAVAILABLE);
    }
    ExpectError(SHUNT_UNAVAILABLE, {}, [&] { c.Get(keys); });
    ExpectError(SHUNT_UNAVAILABLE, {}, [&] {
      c.Put(Keys(200, 230));
      c.store->Flush().Wait();
    });
  }
  StoreClient c(Daemon().socket(), WithFile(4, dir.path(), 64));
  CHECK(Count(c.Get(keys), SHUNT_KV_NONE) == 0);
}

TEST_CASE("bytes that the disk has changed are a miss, and never given out") {
  const TempDir dir;
  Fill(dir.path(), 20);
  {
    std::fstream data(dir / "blocks.data", std::ios::in | std::ios::out | std::ios::binary);
    data.seekp(3 * kBlockBytes);  // a slot's first byte: every block has one
    const int was = data.get();
    data.seekp(3 * kBlockBytes);
    data.put(static_cast<char>(was ^ 1));
  }
  StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 64));
  CHECK(Count(c.Get(Keys(0, 20)), SHUNT_KV_NONE) == 1);
  CHECK(c.Stats().corrupt == 1);
  CHECK(c.Stats().misses == 1);
  CHECK(Count(c.Where(Keys(0, 20)), SHUNT_KV_NONE) == 1);
  c.Put(Keys(0, 20));
  c.store->Flush().Wait();
  CHECK(Count(c.Get(Keys(0, 20)), SHUNT_KV_NONE) == 0);
}

TEST_CASE("a data file that was removed or cut while the store was closed is noted") {
  const TempDir dir;
  Fill(dir.path(), 20);
  REQUIRE(::truncate((dir / "blocks.data").c_str(), 10 * kBlockBytes) == 0);
  {
    StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 64));
    CHECK_THAT(c.store->notes(), Catch::Contains("blocks.data") && Catch::Contains("10 blocks"));
    CHECK(Count(c.Get(Keys(0, 20)), SHUNT_KV_NONE) == 10);
    CHECK(c.Stats().corrupt == 0);
  }
  std::filesystem::remove(dir / "blocks.data");
  StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 64));
  CHECK_FALSE(c.store->notes().empty());
  CHECK(Count(c.Get(Keys(0, 20)), SHUNT_KV_NONE) == 20);
}

TEST_CASE("a data file that is cut under an open store ends gets with words") {
  const TempDir dir;
  Fill(dir.path(), 20);
  StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 64));
  REQUIRE(::truncate((dir / "blocks.data").c_str(), 0) == 0);
  try {
    c.Get(Keys(0, 20));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("blocks.data"));
  }
  CHECK(c.Stats().errors == 20);
}

TEST_CASE("an index with a torn tail loses its last blocks, and says so") {
  const TempDir dir;
  Fill(dir.path(), 20);
  const std::string index = dir / "index.log";
  REQUIRE(::truncate(index.c_str(), static_cast<off_t>(std::filesystem::file_size(index)) - 150) ==
          0);
  StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 64));
  CHECK_THAT(c.store->notes(), Catch::Contains("index.log: cut at byte"));
  CHECK(Count(c.Get(Keys(0, 20)), SHUNT_KV_NONE) == 2);
}

TEST_CASE("a directory without room, without the right to write, or that is none") {
  const TempDir dir;
  const std::string socket = Daemon().socket();
  OnSmallDisk(dir.path(), [&] {
    ExpectError(SHUNT_RESOURCE_EXHAUSTED, {"blocks.data", "room for 2097152 bytes"},
                [&] { StoreClient(socket, WithFile(8, dir.path(), 256)); });
    // What it took in vain was given back.
    StoreClient(socket, WithFile(8, dir.path(), 100)).Put(Keys(0, 8));
    Expect(::mount("none", dir.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0,
           "cannot remount");
    ExpectError(SHUNT_PERMISSION_DENIED, {dir.path()},
                [&] { StoreClient(socket, WithFile(8, dir.path(), 100)); });
  });
  ExpectError(SHUNT_NOT_FOUND, {"none"},
              [&] { StoreClient(socket, WithFile(8, dir / "none", 100)); });
}

TEST_CASE("a disk that is full under the index is flush's error, and no block is lost") {
  const TempDir dir;
  const std::string socket = Daemon().socket();
  OnSmallDisk(dir.path(), [&] {
    StoreClient c(socket, WithFile(64, dir.path(), 100));
    FillDisk(dir / "filler");
    c.Put(Keys(0, 60));  // more records than the index's page has room for
    ExpectError(SHUNT_RESOURCE_EXHAUSTED, {"index"}, [&] { c.store->Flush().Wait(); });
    Expect(Count(c.Get(Keys(0, 60)), SHUNT_KV_NONE) == 0, "a block is lost");
    Expect(c.Stats().errors > 0, "nothing was counted");
    std::filesystem::remove(dir / "filler");
    c.store->Flush().Wait();
    c.store.reset();
    StoreClient again(socket, WithFile(64, dir.path(), 100));
    Expect(Count(again.Get(Keys(0, 60)), SHUNT_KV_FILE) == 60, "not all are there again");
  });
}

TEST_CASE("puts that wait for room get the disk's error, or end when the store is closed") {
  const TempDir dir;
  const std::string socket = Daemon().socket();
  OnSmallDisk(dir.path(), [&] {
    StoreClient c(socket, WithFile(50, dir.path(), 100));
    FillDisk(dir / "filler");
    // 50 lie in memory, 38 records fit into the index: not all of 150 can be put.
    c.Put(Keys(0, 50));
    ExpectError(SHUNT_RESOURCE_EXHAUSTED, {"index"}, [&] {
      c.Put(Keys(50, 100));
      c.Put(Keys(100, 150));
    });
  });
}

TEST_CASE("a forked child cannot use the store, and does not keep its directory") {
  const TempDir dir;
  const std::string socket = Daemon().socket();
  int fds[2];
  REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
  auto c = std::make_unique<StoreClient>(socket, WithFile(8, dir.path(), 64));
  c->Put(Keys(0, 8));
  Process child = Process::Fork([&] {
    ExpectError(SHUNT_FAILED_PRECONDITION, {"forked"}, [&] { c->store->Flush(); });
    ExpectError(SHUNT_FAILED_PRECONDITION, {"forked"}, [&] { c->Where({"a"}); });
    c.reset();
    char byte;
    ::close(fds[1]);
    (void)!::read(fds[0], &byte, 1);  // lives until the parent has tried
  });
  c->store->Flush().Wait();
  c.reset();
  CHECK(Count(StoreClient(socket, WithFile(8, dir.path(), 64)).Get(Keys(0, 8)), SHUNT_KV_FILE) ==
        8);
  ::close(fds[1]);
  child.Join();
}

}  // namespace
}  // namespace shunt::testing
