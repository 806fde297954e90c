// What other calls do while a get waits for an object server that does not answer. It has the one
// reader, so that whatever is got after it stays pinned for as long as the test wants.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "runtime/core/fd.h"
#include "runtime/kv/index_log.h"
#include "runtime/kv/posix_files.h"
#include "tests/kv/world.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;
using shunt::tiers::IndexRecord;
using shunt::tiers::Tier;

constexpr char kHeld[] = "held";

// Connections are made, and nobody answers on them until it is closed.
class SilentServer {
 public:
  SilentServer() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(fd_.get(), generic, bytes) == 0);
    REQUIRE(::listen(fd_.get(), 16) == 0);
    REQUIRE(::getsockname(fd_.get(), generic, &bytes) == 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  const std::string& url() const { return url_; }
  void Close() { fd_.Reset(); }

 private:
  UniqueFd fd_;
  std::string url_;
};

// A store that knows of an object that the server keeps to itself.
struct HeldStore {
  HeldStore(uint64_t memory_slots, uint64_t file_slots, const std::string& endpoint = "silent")
      : daemon({"--storage-s3", "silent=" + server.url() + " path-style"}) {
    {
      auto directory = tiers::OpenLogDirectory(dir.path());
      REQUIRE(directory.ok());
      auto index = tiers::IndexLog::Open(directory->get(), kBlockBytes, file_slots);
      REQUIRE(index.ok());
      const IndexRecord held{true, Tier::kObjects, 0, {kHeld, 100, 1}};
      REQUIRE((*index)->Append(std::span(&held, 1)).ok());
    }
    kv::Options options = WithFile(memory_slots, dir.path(), file_slots);
    options.object_endpoint = endpoint;
    options.object_bucket = "bucket";
    options.object_bytes = file_slots * kBlockBytes;
    options.object_credentials.access_key_id = "key";
    options.object_credentials.secret_access_key = "secret";
    client = std::make_unique<StoreClient>(daemon.socket(), options);
  }

  kv::Call StartGet(const std::string& key, size_t at) {
    return client->store->Get({{key, client->At(at), kBlockBytes}}, 30s);
  }
  // The keys that the next start would find in the tier.
  std::vector<std::string> OnDisk(Tier tier = Tier::kFile) const {
    std::ifstream file(dir / "index.log", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const auto replayed = tiers::Replay(std::as_bytes(std::span(bytes)));
    REQUIRE(replayed.ok());
    CHECK(replayed->why_stopped == "");
    std::vector<std::string> keys;
    for (const IndexRecord& r : replayed->contents.All()) {
      if (r.tier == tier) keys.push_back(r.block.key);
    }
    return keys;
  }

  SilentServer server;
  const TempDir dir;
  TestDaemon daemon;
  std::unique_ptr<StoreClient> client;
};

// Puts `key`, and pushes it out of memory, which has one slot.
void PutBelow(StoreClient& c, const std::string& key) {
  c.Put({key});
  c.store->Flush().Wait();
  c.Put({"another"});
  c.store->Flush().Wait();
  REQUIRE(c.Where({key}) == All(1, SHUNT_KV_FILE));
}

TEST_CASE("a key that is erased and put again while its block is being read is written down") {
  HeldStore held(/*memory_slots=*/1, /*file_slots=*/8);
  StoreClient& c = *held.client;
  PutBelow(c, "key");
  kv::Call first = held.StartGet(kHeld, 10);
  kv::Call second = held.StartGet("key", 11);
  CHECK(c.store->Erase({"key"}) == 1);
  c.Put({"key"});
  c.store->Flush().Wait();
  CHECK(held.OnDisk() == std::vector<std::string>{"another", "key"});
  c.Put({"third"});
  c.store->Flush().Wait();
  CHECK(held.OnDisk() == std::vector<std::string>{"another", "key", "third"});
  CHECK_FALSE(first.Done());
  held.server.Close();
  ExpectError(SHUNT_UNAVAILABLE, {"read object"}, [&] { first.Wait(); });
  second.Wait();  // the old block: its slot was its own to the end
  CHECK(second.Results()[0].tier == SHUNT_KV_FILE);
  CHECK(c.Get({"key"})[0] != SHUNT_KV_NONE);
}

TEST_CASE("a flush that ends has un-named what was erased, also while it is being read") {
  HeldStore held(/*memory_slots=*/1, /*file_slots=*/8);
  StoreClient& c = *held.client;
  PutBelow(c, "key");
  kv::Call first = held.StartGet(kHeld, 10);
  kv::Call second = held.StartGet("key", 11);
  CHECK(c.store->Erase({"key"}) == 1);
  c.store->Flush().Wait();
  CHECK(held.OnDisk() == std::vector<std::string>{"another"});
  held.server.Close();
  ExpectError(SHUNT_UNAVAILABLE, {"read object"}, [&] { first.Wait(); });
  second.Wait();
  // Its slot is free again.
  c.Put(Keys(0, 7));
  c.store->Flush().Wait();
  CHECK(c.Stats().dropped == 0);
}

TEST_CASE("a flush ends in time while the writer waits for an object server, and asks it once") {
  HeldStore held(/*memory_slots=*/2, /*file_slots=*/2);
  StoreClient& c = *held.client;
  c.Put({"a", "b"});
  c.store->Flush().Wait();
  // Both slots of the file are to become objects first.
  c.Put({"c", "d"});
  kv::Call flush = c.store->Flush(100ms);
  ExpectError(SHUNT_DEADLINE_EXCEEDED, {"not all blocks could be written in time"},
              [&] { flush.Wait(20s); });
  held.server.Close();
  kv::Call again = c.store->Flush();
  again.Wait();
  CHECK(c.Where({"a", "b", "c", "d"}) ==
        std::vector<shunt_kv_tier>{SHUNT_KV_NONE, SHUNT_KV_NONE, SHUNT_KV_MEMORY, SHUNT_KV_MEMORY});
  CHECK(c.Stats().errors == 1);
}

TEST_CASE("keys of an object server that are no text are refused, and not repeated") {
  HeldStore held(/*memory_slots=*/1, /*file_slots=*/8);
  kv::Options options = MemoryOnly(1);
  options.object_endpoint = "silent";
  options.object_bucket = "bucket";
  options.object_bytes = kBlockBytes;
  options.object_credentials.secret_access_key = "\xff secret";
  ExpectError(SHUNT_INVALID_ARGUMENT, {"object_secret_access_key is no UTF-8 text"},
              [&] { kv::Store(held.client->session, options); });
}

TEST_CASE("objects that a wrong endpoint does not find are misses, and not forgotten") {
  HeldStore held(/*memory_slots=*/1, /*file_slots=*/8, "nowhere");
  StoreClient& c = *held.client;
  for (uint64_t round = 1; round <= 2; ++round) {
    CHECK(c.Get({kHeld}) == All(1, SHUNT_KV_NONE));
    CHECK(c.Stats().misses == round);
    CHECK(c.Where({kHeld}) == All(1, SHUNT_KV_NONE));
    c.store->Flush().Wait();
    CHECK(held.OnDisk(Tier::kObjects) == std::vector<std::string>{kHeld});
  }
  // But a put of it is one.
  c.Put({kHeld});
  CHECK(c.Get({kHeld}) == All(1, SHUNT_KV_MEMORY));
  c.store->Flush().Wait();
  CHECK(held.OnDisk(Tier::kObjects).empty());
  CHECK(held.OnDisk() == std::vector<std::string>{kHeld});
}

}  // namespace
}  // namespace shunt::testing
