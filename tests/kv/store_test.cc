// Blocks through a store's tiers and back, against a real shuntd.
#include <poll.h>

#include <catch2/catch.hpp>
#include <thread>

#include "tests/kv/world.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;
using Tiers = std::vector<shunt_kv_tier>;

TestDaemon& Daemon() {
  static TestDaemon daemon;
  return daemon;
}

TEST_CASE("blocks of any length come back as they were put") {
  StoreClient c(Daemon().socket(), MemoryOnly(32));
  const auto keys = Keys(0, 32);
  c.Put(keys);
  CHECK(c.Get(keys) == All(32, SHUNT_KV_MEMORY));
  CHECK(c.Get({"other", keys[3], "another"}) ==
        Tiers{SHUNT_KV_NONE, SHUNT_KV_MEMORY, SHUNT_KV_NONE});
  const shunt_kv_facts facts = c.Stats();
  CHECK(facts.puts == 32);
  CHECK(facts.tiers[0].hits == 33);
  CHECK(facts.misses == 2);
  CHECK(facts.tiers[0].blocks == 32);
  CHECK(facts.put_bytes == facts.tiers[0].bytes);
}

TEST_CASE("keys are any bytes, from 1 to 64") {
  StoreClient c(Daemon().socket(), MemoryOnly(8));
  const std::vector<std::string> keys{std::string("\0", 1), std::string("\0\0", 2), "\xff/\n",
                                      std::string(64, 'k')};
  c.Put(keys);
  CHECK(c.Get(keys) == All(4, SHUNT_KV_MEMORY));
  ExpectError(SHUNT_INVALID_ARGUMENT, {"blocks[0]", "65 bytes, expected 1 to 64"},
              [&] { c.Put({std::string(65, 'k')}); });
  ExpectError(SHUNT_INVALID_ARGUMENT, {"0 bytes"}, [&] { c.Put({""}); });
}

TEST_CASE("without a tier below the least recently used block is dropped, and no more are held") {
  StoreClient c(Daemon().socket(), MemoryOnly(4));
  c.Put({"a", "b", "c", "d"});
  CHECK(c.Get({"a"}) == All(1, SHUNT_KV_MEMORY));
  c.Put({"b"});  // there: it only becomes the most recent
  c.Put({"e", "f"});
  CHECK(c.Where({"a", "b", "c", "d", "e", "f"}) == Tiers{0, 0, SHUNT_KV_NONE, SHUNT_KV_NONE, 0, 0});
  const shunt_kv_facts facts = c.Stats();
  CHECK(facts.puts_present == 1);
  CHECK(facts.tiers[0].evictions == 2);
  CHECK(facts.dropped == 2);
  CHECK(facts.tiers[0].blocks == 4);
  // More than fit at all: the last ones stay.
  const auto keys = Keys(0, 20);
  c.Put(keys);
  CHECK(c.Where(Keys(16, 20)) == All(4, SHUNT_KV_MEMORY));
  CHECK(c.Stats().tiers[0].blocks == 4);
}

TEST_CASE("what does not fit into memory goes to the file, and comes up again when it is got") {
  const TempDir dir;
  StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 64));
  const auto keys = Keys(0, 40);
  c.Put(keys);
  CHECK(c.store->Prefix(Views(keys)) == 40);
  const Tiers got = c.Get(keys);
  CHECK(std::count(got.begin(), got.end(), SHUNT_KV_FILE) >= 32);
  CHECK(std::count(got.begin(), got.end(), SHUNT_KV_MEMORY) <= 8);
  CHECK(c.Stats().dropped == 0);
  c.store->Flush().Wait();  // now any slot of memory may go
  const uint64_t before = c.Stats().promotions;
  const Tiers where = c.Where(Keys(0, 40));
  const auto below = std::find(where.begin(), where.end(), SHUNT_KV_FILE) - where.begin();
  const std::string& key = keys[static_cast<size_t>(below)];
  CHECK(c.Get({key}) == All(1, SHUNT_KV_FILE));
  CHECK(c.Get({key}) == All(1, SHUNT_KV_MEMORY));
  CHECK(c.Stats().promotions == before + 1);
}

TEST_CASE("a full file gives up what was used least recently, and holds no more than it may") {
  const TempDir dir;
  StoreClient c(Daemon().socket(), WithFile(4, dir.path(), 8));
  for (int i = 0; i < 30; ++i) {
    c.Put(Keys(i, i + 1));
    c.store->Flush().Wait();
    const shunt_kv_facts facts = c.Stats();
    REQUIRE(facts.tiers[0].blocks <= 4);
    REQUIRE(facts.tiers[1].blocks <= 8);
    REQUIRE(facts.tiers[0].slots == 4);
    REQUIRE(facts.tiers[1].slots == 8);
  }
  CHECK(c.Where(Keys(22, 30)) == Tiers{1, 1, 1, 1, 0, 0, 0, 0});
  CHECK(c.Where(Keys(0, 22)) == All(22, SHUNT_KV_NONE));
  CHECK(c.Stats().dropped == 22);
  CHECK(c.Stats().tiers[1].evictions == 22);
  // A get makes it recent below too.
  CHECK(c.Get(Keys(22, 23)) == All(1, SHUNT_KV_FILE));
  c.Put(Keys(30, 31));
  c.store->Flush().Wait();
  CHECK(c.Where(Keys(22, 24)) == Tiers{0, SHUNT_KV_NONE});
}

TEST_CASE("a put of many more blocks than memory has waits for the disk, not for ever") {
  const TempDir dir;
  StoreClient c(Daemon().socket(), WithFile(2, dir.path(), 64));
  const auto keys = Keys(0, 60);
  c.Put(keys);
  c.store->Flush().Wait();
  CHECK(c.Get(keys).size() == 60);
  CHECK(c.Stats().misses == 0);
}

TEST_CASE("a flush ends also when the file has no more slots than memory") {
  const TempDir dir;
  ExpectError(SHUNT_INVALID_ARGUMENT, {"file_bytes is 57344, expected at least memory_bytes"},
              [&] { StoreClient(Daemon().socket(), WithFile(8, dir.path(), 7)); });
  StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 8));
  for (int round = 0; round < 20; ++round) {
    c.Put(Keys(round * 5, round * 5 + 5));
    (void)c.Get(Keys(round * 3, round * 3 + 3));
    c.store->Flush(20s).Wait();
    REQUIRE(c.Stats().dirty == 0);
  }
}

TEST_CASE("a store finds its blocks again") {
  const TempDir dir;
  const auto keys = Keys(0, 20);
  {
    StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 32));
    c.Put(keys);
    c.store->Flush().Wait();
    CHECK(c.store->Erase(Views(Keys(3, 5))) == 2);
    CHECK(c.store->Erase(Views({"nothing"})) == 0);
    c.store->Flush().Wait();
  }
  StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 32));
  CHECK(c.store->notes().empty());
  CHECK(c.store->Prefix(Views(keys)) == 3);
  Tiers expected = All(20, SHUNT_KV_FILE);
  expected[3] = expected[4] = SHUNT_KV_NONE;
  CHECK(c.Get(keys) == expected);
}

TEST_CASE("what is erased while it is written down does not come back") {
  const TempDir dir;
  StoreClient c(Daemon().socket(), WithFile(8, dir.path(), 32));
  for (int round = 0; round < 60; ++round) {
    const auto keys = Keys(round * 8, round * 8 + 8);
    c.Put(keys);
    kv::Call flush = c.store->Flush();
    // At another moment of the writing in each round.
    for (int look = 0; look < round * 10; ++look) (void)c.Stats();
    CHECK(c.store->Erase(Views(keys)) == 8);
    flush.Wait();
    REQUIRE(c.Where(keys) == All(8, SHUNT_KV_NONE));
  }
  c.store->Flush().Wait();
  c.store.reset();
  StoreClient again(Daemon().socket(), WithFile(8, dir.path(), 32));
  CHECK(again.Stats().tiers[1].blocks == 0);
}

TEST_CASE("a second store on a directory, and other slots, are refused with words") {
  const TempDir dir;
  {
    StoreClient c(Daemon().socket(), WithFile(4, dir.path(), 8));
    c.Put(Keys(0, 4));
    c.store->Flush().Wait();
    ExpectError(SHUNT_FAILED_PRECONDITION, {dir.path(), "in use by another"},
                [&] { StoreClient(Daemon().socket(), WithFile(4, dir.path(), 8)); });
  }
  kv::Options other = WithFile(4, dir.path(), 8);
  other.block_bytes = 2 * kBlockBytes;
  ExpectError(SHUNT_FAILED_PRECONDITION, {"index.log", "up to 8192 bytes, expected 16384"},
              [&] { StoreClient(Daemon().socket(), other); });
  StoreClient c(Daemon().socket(), WithFile(4, dir.path(), 8));
  CHECK(c.Get(Keys(0, 4)) == All(4, SHUNT_KV_FILE));
}

TEST_CASE("calls are polled, waited for with a deadline, and have a descriptor") {
  StoreClient c(Daemon().socket(), MemoryOnly(8));
  kv::Call put = c.StartPut(Keys(0, 4));
  pollfd ready{put.Fd(), POLLIN, 0};
  REQUIRE(::poll(&ready, 1, 30'000) == 1);
  CHECK(put.Done());
  CHECK(put.Wait(1s).size() == 4);
  CHECK(put.Results()[0].tier == SHUNT_KV_MEMORY);
  // Also if it is asked for afterwards.
  kv::Call again = c.StartPut(Keys(0, 4));
  again.Wait();
  ready = {again.Fd(), POLLIN, 0};
  CHECK(::poll(&ready, 1, 0) == 1);
}

TEST_CASE("room that is too small, memory that is no region, a block that is too long") {
  StoreClient c(Daemon().socket(), MemoryOnly(8));
  const std::string key = "block 1";
  const std::string content = ContentOf(key);
  c.Put({key, "b"});
  kv::Call call = c.store->Get({{key, c.At(0), content.size() - 1}, {"b", c.At(1), kBlockBytes}});
  ExpectError(SHUNT_OUT_OF_RANGE, {"blocks[0]", std::to_string(content.size())},
              [&] { call.Wait(); });
  CHECK(call.Results()[0].code == SHUNT_OUT_OF_RANGE);
  CHECK(call.Results()[0].bytes == content.size());
  CHECK(call.Results()[1].code == SHUNT_OK);
  char local[16];
  ExpectError(SHUNT_INVALID_ARGUMENT, {"blocks[0]", "no region"}, [&] {
    c.store->Get({{key, local, sizeof(local)}});
  });
  ExpectError(SHUNT_INVALID_ARGUMENT, {"8193 bytes, expected 1 to 8192"}, [&] {
    c.store->Put({{"x", c.At(0), kBlockBytes + 1}});
  });
  // A key's bytes never change: of another length they have.
  kv::Call put = c.store->Put({{"b", c.At(0), 8192}, {"new", c.At(0), 10}});
  ExpectError(SHUNT_INVALID_ARGUMENT, {"blocks[0] has 8192 bytes", ", 62, has "},
              [&] { put.Wait(); });
  CHECK(put.Results()[0].code == SHUNT_INVALID_ARGUMENT);
  CHECK(put.Results()[0].bytes == ContentOf("b").size());
  CHECK(put.Results()[1].code == SHUNT_OK);
  // Room is one block's own; puts may share what they read.
  c.store->Get({{key, c.At(1), kBlockBytes}, {"b", c.At(0), kBlockBytes}}).Wait();
  for (const uint64_t offset : {uint64_t{0}, kBlockBytes - 1}) {
    ExpectError(SHUNT_INVALID_ARGUMENT, {"blocks[2]", "overlaps that of blocks[0]"}, [&] {
      c.store->Get({{key, c.At(1) + offset, kBlockBytes},
                    {"b", c.At(3), kBlockBytes},
                    {"b", c.At(1), kBlockBytes}});
    });
  }
  c.store->Put({{"same", c.At(0), 10}, {"bytes", c.At(0), 10}}).Wait();
  ExpectError(SHUNT_FAILED_PRECONDITION, {"nothing in it is durable"}, [&] { c.store->Flush(); });
}

TEST_CASE("a region can be freed when the calls that used it have ended") {
  StoreClient c(Daemon().socket(), MemoryOnly(8));
  void* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    void* region = nullptr;
    REQUIRE(shunt_alloc(c.session.get(), kBlockBytes, &region) == SHUNT_OK);
    c.store->Put({{"k" + std::to_string(round), region, 100}}).Wait();
    c.store->Get({{"k0", region, 100}}).Wait();
    REQUIRE(shunt_free(c.session.get(), region) == SHUNT_OK);
    first = region;
  }
  (void)first;
}

TEST_CASE("many threads put and get, and each sees whole blocks") {
  const TempDir dir;
  const std::string socket = Daemon().socket();
  StoreClient shared(socket, WithFile(12, dir.path(), 40));
  RunThreads(4, [&](int thread) {
    Buffer<char> memory = shared.session.Allocate<char>(4 * kBlockBytes);
    std::mt19937 random(static_cast<unsigned>(thread));
    for (int i = 0; i < 150; ++i) {
      std::vector<std::string> keys;
      for (int k = 0; k < 4; ++k) keys.push_back("shared " + std::to_string(random() % 60));
      std::vector<kv::Block> blocks;
      const bool put = random() % 2 == 0;
      for (size_t k = 0; k < 4; ++k) {
        char* const at = memory.data() + k * kBlockBytes;
        const std::string content = ContentOf(keys[k]);
        if (put) std::copy(content.begin(), content.end(), at);
        blocks.push_back({keys[k], at, put ? content.size() : kBlockBytes});
      }
      if (put) {
        shared.store->Put(blocks, 30s).Wait();
        continue;
      }
      const auto results = shared.store->Get(blocks, 30s).Wait();
      for (size_t k = 0; k < 4; ++k) {
        if (results[k].code == SHUNT_NOT_FOUND) continue;
        const std::string content = ContentOf(keys[k]);
        Expect(results[k].bytes == content.size() &&
                   std::equal(content.begin(), content.end(), memory.data() + k * kBlockBytes),
               keys[k] + " is not what was put");
      }
      if (i % 10 == 0) shared.store->Erase({keys[0]});
      if (i % 25 == 0) shared.store->Flush().Wait();
    }
  });
  const shunt_kv_facts facts = shared.Stats();
  CHECK(facts.corrupt == 0);
  CHECK(facts.errors == 0);
  CHECK(facts.tiers[0].blocks <= 12);
  CHECK(facts.tiers[1].blocks <= 40);
}

}  // namespace
}  // namespace shunt::testing
