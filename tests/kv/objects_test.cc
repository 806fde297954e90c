// The tier of objects, on a real S3 server that tests/storage/s3_server.py has started.
#include <catch2/catch.hpp>

#include "runtime/kv/types.h"
#include "tests/kv/world.h"
#include "tests/storage/s3_world.h"

namespace shunt::testing {
namespace {

using storage::testing::S3Admin;
using storage::testing::TestOptions;
using Tiers = std::vector<shunt_kv_tier>;

TestDaemon& Daemon() {
  static TestDaemon daemon({"--storage-s3", "rgw=" + TestOptions().endpoint.url +
                                                " path-style,dead=http://127.0.0.1:1 path-style"});
  return daemon;
}

struct Bucket {
  Bucket() : admin(TestOptions()) {
    static int buckets = 0;
    name = "kv-" + std::to_string(::getpid()) + "-" + std::to_string(++buckets);
    admin.MakeBucket(name);
  }
  kv::Options With(kv::Options options, uint64_t slots) const {
    options.object_endpoint = "rgw";
    options.object_bucket = name;
    options.object_prefix = "kv/";
    options.object_bytes = slots * kBlockBytes;
    options.object_credentials.access_key_id = TestOptions().credentials.access_key;
    options.object_credentials.secret_access_key = TestOptions().credentials.secret_key;
    return options;
  }
  S3Admin admin;
  std::string name;
};

int64_t Count(const Tiers& tiers, shunt_kv_tier tier) {
  return std::count(tiers.begin(), tiers.end(), tier);
}

TEST_CASE("what memory has no room for becomes objects, and comes up again when it is got") {
  Bucket bucket;
  StoreClient c(Daemon().socket(), bucket.With(MemoryOnly(4), 64));
  const auto keys = Keys(0, 12);
  c.Put(keys);
  c.store->Flush().Wait();
  std::vector<std::string> names;
  for (const std::string& key : keys) names.push_back("kv/" + shunt::tiers::Hex(key));
  std::sort(names.begin(), names.end());
  CHECK(bucket.admin.List(bucket.name) == names);
  const Tiers got = c.Get(keys);
  CHECK(Count(got, SHUNT_KV_NONE) == 0);
  CHECK(Count(got, SHUNT_KV_OBJECTS) >= 8);
  CHECK(c.Stats().tiers[2].hits == static_cast<uint64_t>(Count(got, SHUNT_KV_OBJECTS)));
  (void)c.Get({keys[0]});
  CHECK(c.Get({keys[0]}) == All(1, SHUNT_KV_MEMORY));
}

TEST_CASE("what the file has no room for becomes objects, which the next store knows") {
  Bucket bucket;
  const TempDir dir;
  const auto keys = Keys(0, 24);
  {
    StoreClient c(Daemon().socket(), bucket.With(WithFile(4, dir.path(), 8), 64));
    for (int i = 0; i < 24; i += 4) {
      c.Put(Keys(i, i + 4));
      c.store->Flush().Wait();
    }
    CHECK(c.store->Prefix(Views(keys)) == 24);
    CHECK(c.Stats().tiers[1].blocks == 8);
    CHECK(c.Stats().tiers[2].blocks == 16);
    CHECK(c.Stats().dropped == 0);
  }
  StoreClient c(Daemon().socket(), bucket.With(WithFile(4, dir.path(), 8), 64));
  const Tiers got = c.Get(keys);
  CHECK(Count(got, SHUNT_KV_OBJECTS) == 16);
  CHECK(Count(got, SHUNT_KV_FILE) == 8);
}

TEST_CASE("no more objects are known than there may be") {
  Bucket bucket;
  StoreClient c(Daemon().socket(), bucket.With(MemoryOnly(2), 6));
  for (int i = 0; i < 12; ++i) {
    c.Put(Keys(i, i + 1));
    c.store->Flush().Wait();
    REQUIRE(c.Stats().tiers[2].blocks <= 6);
  }
  CHECK(Count(c.Get(Keys(6, 12)), SHUNT_KV_NONE) == 0);
  CHECK(c.Where(Keys(0, 6)) == All(6, SHUNT_KV_NONE));
  CHECK(c.Stats().dropped == 6);
}

TEST_CASE("objects that others have removed or replaced are misses") {
  Bucket bucket;
  StoreClient c(Daemon().socket(), bucket.With(MemoryOnly(2), 64));
  const auto keys = Keys(0, 8);
  c.Put(keys);
  c.store->Flush().Wait();
  const std::string first = "kv/" + shunt::tiers::Hex(keys[0]);
  const std::string second = "kv/" + shunt::tiers::Hex(keys[1]);
  REQUIRE(bucket.admin.Do({.method = "DELETE", .bucket = bucket.name, .key = first}).status.ok());
  const std::string other(ContentOf(keys[1]).size(), 'x');
  storage::Call replace{.method = "PUT", .bucket = bucket.name, .key = second};
  replace.text = other;
  REQUIRE(bucket.admin.Do(std::move(replace)).status.ok());
  const Tiers got = c.Get(keys);
  CHECK(got[0] == SHUNT_KV_NONE);
  CHECK(got[1] == SHUNT_KV_NONE);
  CHECK(Count(got, SHUNT_KV_NONE) == 2);
  CHECK(c.Stats().corrupt == 2);
  CHECK(c.Stats().misses == 2);
  CHECK(c.Where({keys[0]}) == All(1, SHUNT_KV_NONE));
}

TEST_CASE("a server that is gone is flush's error, and that of puts that wait for room") {
  Bucket bucket;
  kv::Options options = bucket.With(MemoryOnly(4), 64);
  options.object_endpoint = "dead";
  StoreClient c(Daemon().socket(), options);
  c.Put(Keys(0, 3));
  ExpectError(SHUNT_UNAVAILABLE, {"write object", "kv/"}, [&] { c.store->Flush().Wait(); });
  ExpectError(SHUNT_UNAVAILABLE, {"write object"}, [&] { c.Put(Keys(3, 20)); });
  CHECK(c.Get(Keys(0, 3)) == All(3, SHUNT_KV_MEMORY));
  CHECK(c.Stats().errors > 0);
  CHECK(c.Stats().tiers[0].blocks <= 4);
}

TEST_CASE(
    "a block that cannot become an object is dropped with its slot in the file, and counted") {
  Bucket bucket;
  const TempDir dir;
  kv::Options options = bucket.With(WithFile(2, dir.path(), 4), 64);
  options.object_endpoint = "dead";
  StoreClient c(Daemon().socket(), options);
  c.Put(Keys(0, 4));
  c.store->Flush().Wait();
  c.Put(Keys(4, 6));
  c.store->Flush().Wait();
  CHECK(c.Where(Keys(0, 2)) == All(2, SHUNT_KV_NONE));
  CHECK(Count(c.Get(Keys(2, 6)), SHUNT_KV_NONE) == 0);
  CHECK(c.Stats().dropped == 2);
  CHECK(c.Stats().errors == 1);  // a server that is gone is not asked twice
}

}  // namespace
}  // namespace shunt::testing
