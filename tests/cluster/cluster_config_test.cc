#include <catch2/catch.hpp>
#include <string>

#include "daemon/cluster/config.h"

namespace shunt::cluster {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

absl::Status Set(ClusterConfig* config, std::string_view name, const ClusterValue& value) {
  for (const ClusterKey& key : kClusterKeys) {
    if (name == key.name) return key.set(config, value);
  }
  return absl::NotFoundError(std::string(name));
}

ClusterConfig Valid() {
  ClusterConfig config;
  config.node = "a";
  config.listen = "127.0.0.1:7071";
  return config;
}

std::string Error(const ClusterConfig& config) {
  const absl::Status status = CheckClusterConfig(config);
  return status.ok() ? "" : std::string(status.message());
}

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("values arrive") {
  ClusterConfig config;
  REQUIRE(Set(&config, "cluster.listen", "127.0.0.1:0").ok());
  REQUIRE(Set(&config, "cluster.membership", "etcd").ok());
  REQUIRE(Set(&config, "cluster.role", "aggregator").ok());
  CHECK(config.role == Role::kAggregator);
  CHECK_FALSE(Set(&config, "cluster.role", "switch").ok());
  REQUIRE(Set(&config, "cluster.members", Strings{"a=127.0.0.1:1", "b=[::1]:2"}).ok());
  REQUIRE(Set(&config, "cluster.etcd_endpoints", Strings{"http://127.0.0.1:2379"}).ok());
  REQUIRE(Set(&config, "cluster.etcd_lease", "1.5s").ok());
  REQUIRE(Set(&config, "cluster.dns_refresh", "2min").ok());
  REQUIRE(Set(&config, "cluster.dns_port", int64_t{7071}).ok());
  CHECK(config.listen == "127.0.0.1:0");
  CHECK(config.membership == MembershipKind::kEtcd);
  CHECK(config.members.size() == 2);
  CHECK(config.etcd_lease == 1500ms);
  CHECK(config.dns_refresh == 2min);
  CHECK(config.dns_port == 7071);
}

TEST_CASE("wrong values are refused with what was seen") {
  const struct {
    const char* key;
    ClusterValue value;
    const char* seen;
  } cases[] = {
      {"cluster.listen", "7071", "is \"7071\""},
      {"cluster.listen", int64_t{7071}, "is 7071"},
      {"cluster.advertise", "a:0", "is \"a:0\""},
      {"cluster.name", "my cluster", "is \"my cluster\""},
      {"cluster.membership", "zookeeper", "is \"zookeeper\""},
      {"cluster.members", "a=b:1", "is \"a=b:1\""},
      {"cluster.members", Strings{"127.0.0.1:1"}, "without a '='"},
      {"cluster.members", Strings{"a=127.0.0.1"}, "has no port"},
      {"cluster.members", Strings{"a b=127.0.0.1:1"}, "\"a b\" is no name"},
      {"cluster.members", std::vector<int64_t>{1}, "is a list of integers"},
      {"cluster.etcd_endpoints", Strings{"127.0.0.1:2379"}, "\"127.0.0.1:2379\""},
      {"cluster.etcd_endpoints", Strings{"ftp://127.0.0.1:2379"}, "ftp"},
      {"cluster.etcd_lease", "500ms", "is \"500ms\""},
      {"cluster.etcd_lease", "nan s", "is \"nan s\""},
      {"cluster.dns_port", int64_t{65536}, "is 65536"},
  };
  for (const auto& c : cases) {
    INFO(c.key << " " << c.seen);
    ClusterConfig config;
    const absl::Status status = Set(&config, c.key, c.value);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Contains(std::string(status.message()), c.seen));
  }
}

TEST_CASE("without an address to listen on there is no cluster, and nothing to check") {
  ClusterConfig config;
  config.tls_cert = "x";
  CHECK(!config.enabled());
  CHECK(CheckClusterConfig(config).ok());
  CHECK(Error(Valid()).empty());
}

TEST_CASE("every address of the machine needs TLS, and an address for the others") {
  ClusterConfig config = Valid();
  config.listen = "0.0.0.0:7071";
  CHECK(Contains(Error(config), "cluster.listen is \"0.0.0.0:7071\", every address"));
  config.tls_cert = config.tls_key = "x";
  CHECK(Contains(Error(config), "2 of the three"));
  config.tls_ca = "x";
  CHECK(Contains(Error(config), "expected cluster.advertise"));
  config.advertise = "10.0.0.1:7071";
  CHECK(Error(config).empty());
}

TEST_CASE("a node at two addresses and two nodes at one are refused with both") {
  ClusterConfig config = Valid();
  config.members = {"b=10.0.0.1:1", "b=10.0.0.2:1"};
  CHECK(Contains(Error(config), "node 'b' twice, at 10.0.0.1:1 and at 10.0.0.2:1"));
  config.members = {"b=10.0.0.1:1", "c=10.0.0.1:1"};
  CHECK(Contains(Error(config), "two nodes at 10.0.0.1:1, 'b' and 'c'"));
  config.members = {"b=10.0.0.1:1", "b=10.0.0.1:1"};
  CHECK(Error(config).empty());
}

TEST_CASE("dns and etcd need their keys") {
  ClusterConfig config = Valid();
  config.membership = MembershipKind::kDns;
  CHECK(Contains(Error(config), "cluster.dns_name is not set"));
  config.dns_name = "shunt.example";
  CHECK(Error(config).empty());
  config.listen = "127.0.0.1:0";
  CHECK(Contains(Error(config), "cluster.dns_port is 0"));
  config = Valid();
  config.membership = MembershipKind::kEtcd;
  CHECK(Contains(Error(config), "cluster.etcd_endpoints is empty"));
}

TEST_CASE("the node itself may be in the list or not") {
  ClusterConfig config = Valid();
  const MemberInfo self{"a", "127.0.0.1:7071", 5};
  config.members = {"b=10.0.0.2:7071", "b=10.0.0.2:7071"};
  CHECK(MakeView(StaticMembers(config, self), false).members.size() == 2);
  config.members.push_back("a=10.0.0.1:7071");
  const View view = MakeView(StaticMembers(config, self), false);
  CHECK(view.members.size() == 2);
  CHECK(FindMember(view, "a")->incarnation == 5);
}

TEST_CASE("what others are told is advertised, else listed, else listened on") {
  ClusterConfig config = Valid();
  config.listen = "127.0.0.1:0";
  CHECK(AdvertisedAddress(config, 4711) == "127.0.0.1:4711");
  config.members = {"a=10.0.0.1:7071"};
  CHECK(AdvertisedAddress(config, 4711) == "10.0.0.1:7071");
  config.advertise = "node-a:7072";
  CHECK(AdvertisedAddress(config, 4711) == "node-a:7072");
}

TEST_CASE("a node without a configured name has the host's") { CHECK(!NodeName({}).empty()); }

TEST_CASE("an aggregator without a cluster is refused") {
  ClusterConfig config = Valid();
  config.role = Role::kAggregator;
  CHECK(Error(config).empty());
  config.listen = "";
  CHECK(Contains(Error(config), "cluster.role"));
}

}  // namespace
}  // namespace shunt::cluster
