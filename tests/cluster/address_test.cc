#include "daemon/cluster/address.h"

#include <catch2/catch.hpp>

namespace shunt::cluster {
namespace {

TEST_CASE("addresses are read and written") {
  for (const char* text :
       {"10.0.0.1:7071", "node-a.example:1", "[fd00::1]:65535", "localhost:80"}) {
    INFO(text);
    const auto address = ParseAddress(text, false);
    REQUIRE(address.ok());
    CHECK(FormatAddress(*address) == text);
  }
  CHECK(ParseAddress("a:0", true)->port == 0);
}

TEST_CASE("what is no address is refused with what was seen") {
  for (const char* text :
       {"", ":", "a", "a:", ":1", "a:0", "a:-1", "a:+1", "a: 1", "a:65536", "a:123456",
        "fd00::1:7071", "[fd00::g]:1", "[]:1", "[a]:1", "a b:1", "a/b:1", "a\n:1", "http://a:1"}) {
    INFO(text);
    const auto address = ParseAddress(text, false);
    CHECK(address.status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(std::string(ParseAddress("a:x", false).status().message()).find("\"a:x\"") !=
        std::string::npos);
  CHECK(!ParseAddress(std::string(300, 'a') + ":1", false).ok());
}

TEST_CASE("wildcards and loopback are known") {
  const auto address = [](const char* text) { return *ParseAddress(text, true); };
  CHECK(IsWildcard(address("0.0.0.0:1")));
  CHECK(IsWildcard(address("[::]:1")));
  CHECK(IsWildcard(address("[0:0::0]:1")));
  CHECK(!IsWildcard(address("10.0.0.0:1")));
  CHECK(IsLoopback(address("127.3.2.1:1")));
  CHECK(IsLoopback(address("[::1]:1")));
  CHECK(IsLoopback(address("localhost:1")));
  CHECK(!IsLoopback(address("128.0.0.1:1")));
}

TEST_CASE("node names") {
  for (const char* name : {"a", "node-1.rack_2", "9"}) CHECK(CheckNodeName(name).ok());
  for (const char* name : {"", "-a", ".a", "a b", "a=b", "a/b", "\xc3\xa4"}) {
    INFO(name);
    CHECK(CheckNodeName(name).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(CheckNodeName(std::string(63, 'a')).ok());
  CHECK(!CheckNodeName(std::string(64, 'a')).ok());
}

}  // namespace
}  // namespace shunt::cluster
