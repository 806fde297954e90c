#include "daemon/config.h"

#include <catch2/catch.hpp>

namespace shunt::daemon {
namespace {

using namespace std::chrono_literals;

TEST_CASE("sizes") {
  CHECK(*ParseSize("0") == 0);
  CHECK(*ParseSize("4096") == 4096);
  CHECK(*ParseSize("8GiB") == 8ull << 30);
  CHECK(*ParseSize("512 MiB") == 512ull << 20);
  CHECK(*ParseSize("1.5GB") == 1'500'000'000);
  CHECK(*ParseSize("10K") == 10240);
  for (const char* text :
       {"", "GiB", "-1", "1XB", "1e9", "8 parsecs", "1..5", "99999999999TiB", " 1"}) {
    INFO(text);
    CHECK(ParseSize(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("durations") {
  CHECK(*ParseDuration("500us") == 500us);
  CHECK(*ParseDuration("10s") == 10s);
  CHECK(*ParseDuration("1.5 m") == 90s);
  CHECK(*ParseDuration("2h") == 2h);
  for (const char* text : {"", "10", "s", "-1s", "1 fortnight", "999999999999h"}) {
    INFO(text);
    CHECK(ParseDuration(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("every key of the table can be set from a file and from a flag") {
  struct {
    const char* key;
    const char* toml;
    const char* flag;
  } const cases[] = {
      {"socket", "\"/tmp/x.sock\"", "/tmp/x.sock"},
      {"socket_mode", "\"0666\"", "0666"},
      {"log_level", "\"debug\"", "debug"},
      {"log_format", "\"json\"", "json"},
      {"worker_threads", "3", "3"},
      {"worker_cpus", "\"0-1\"", "0-1"},
      {"numa_nodes", "[0, 1]", "0,1"},
      {"memory_total", "\"1GiB\"", "1GiB"},
      {"memory_per_tenant", "1024", "1024"},
      {"memory_per_session", "\"1MB\"", "1MB"},
      {"grace_period", "\"1s\"", "1s"},
      {"warm_ttl", "\"1m\"", "1m"},
      {"warm_communicators", "7", "7"},
      {"max_sessions", "7", "7"},
      {"max_sessions_per_tenant", "7", "7"},
      {"max_communicators_per_session", "7", "7"},
      {"max_regions_per_session", "7", "7"},
      {"spin_us", "-1", "-1"},
      {"gpu.enabled", "\"off\"", "off"},
      {"gpu.devices", "[\"0\", \"GPU-12\"]", "0,GPU-12"},
      {"gpu.worker", "\"/opt/w\"", "/opt/w"},
      {"gpu.mps", "\"use\"", "use"},
      {"recorder.calls", "64", "64"},
      {"recorder.transfers", "16", "16"},
      {"recorder.memory", "\"1MiB\"", "1MiB"},
      {"page.address", "\"127.0.0.1:9465\"", "localhost:9465"},
      {"admin.remote", "[\"ops\", \"boss\"]", "ops,boss"},
      {"storage.roots", "[\"a=/srv/a\", \"b=/b\"]", "a=/srv/a,b=/b"},
      {"storage.s3", "[\"m=http://h:9000 path-style\"]", "m=http://h:9000 path-style"},
      {"storage.plugins", "[\"p=/lib/p.so a b\"]", "p=/lib/p.so a b"},
      {"metrics.address", "\"127.0.0.1:9464\"", "[::1]:9464"},
      {"metrics.link_capacity", "\"25GB\"", "25GB"},
      {"cluster.name", "\"prod\"", "prod"},
      {"cluster.node", "\"a\"", "a"},
      {"cluster.listen", "\"127.0.0.1:7071\"", "127.0.0.1:7071"},
      {"cluster.advertise", "\"10.0.0.1:7071\"", "10.0.0.1:7071"},
      {"cluster.data_listen", "\"127.0.0.1:0\"", "127.0.0.1:0"},
      {"cluster.role", "\"aggregator\"", "aggregator"},
      {"cluster.transport", "\"rdma\"", "rdma"},
      {"cluster.movers", "3", "3"},
      {"cluster.congestion", "\"cubic\"", "cubic"},
      {"cluster.rdma_devices", "\"mlx5_0:1\"", "mlx5_0:1"},
      {"cluster.rdma_transports", "\"dc\"", "dc"},
      {"cluster.membership", "\"etcd\"", "etcd"},
      {"cluster.members", "[\"a=h:1\", \"b=h:2\"]", "a=h:1,b=h:2"},
      {"cluster.dns_name", "\"shunt.svc\"", "shunt.svc"},
      {"cluster.dns_port", "7071", "7071"},
      {"cluster.dns_server", "\"127.0.0.1:53\"", "127.0.0.1:53"},
      {"cluster.dns_refresh", "\"2s\"", "2s"},
      {"cluster.etcd_endpoints", "[\"http://h:2379\"]", "http://h:2379"},
      {"cluster.etcd_lease", "\"5s\"", "5s"},
      {"cluster.tls_cert", "\"/c\"", "/c"},
      {"cluster.tls_key", "\"/k\"", "/k"},
      {"cluster.tls_ca", "\"/a\"", "/a"},
  };
  CHECK(std::size(cases) == ConfigKeys().size());
  for (const auto& c : cases) {
    INFO(c.key);
    const ConfigKey* key = FindConfigKey(c.key);
    REQUIRE(key != nullptr);
    Config config;
    const absl::Status from_file =
        ApplyToml(std::string(c.key) + " = " + c.toml, "x.toml", &config);
    CHECK(from_file.ToString() == "OK");
    CHECK(ApplyFlag(*key, c.flag, &config).ToString() == "OK");
  }
}

TEST_CASE("the defaults that --help shows are those of a daemon without flags") {
  // Each key is set to something else first, so that a wrong default can't hide.
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.initial == nullptr) continue;
    INFO(key.name);
    Config shown;
    shown.socket = shown.log_level = shown.log_format = shown.worker_cpus = "x";
    shown.page_address = "x";
    shown.socket_mode = 1;
    shown.numa_nodes = {77};
    shown.memory_total = shown.memory_per_tenant = shown.memory_per_session = 77;
    shown.grace_period = shown.warm_ttl = 77ns;
    shown.worker_threads = shown.warm_communicators = shown.max_sessions = 77;
    shown.max_sessions_per_tenant = shown.max_communicators_per_session = 77;
    shown.max_regions_per_session = shown.spin_us = 77;
    shown.gpu_enabled = shown.gpu_worker = shown.gpu_mps = "x";
    shown.gpu_devices = {"x"};
    shown.metrics_address = "x";
    shown.metrics_link_capacity = 77;
    shown.recorder_calls = shown.recorder_transfers = 77;
    shown.recorder_memory = 77;
    const Config other = shown;
    REQUIRE(ApplyFlag(key, key.initial, &shown).ok());
    const Config initial;
    int set = 0;
    const auto arrived = [&](auto member) {
      if (shown.*member == other.*member) return;
      ++set;
      CHECK(shown.*member == initial.*member);
    };
    arrived(&Config::socket), arrived(&Config::socket_mode), arrived(&Config::log_level);
    arrived(&Config::log_format), arrived(&Config::worker_threads), arrived(&Config::worker_cpus);
    arrived(&Config::numa_nodes), arrived(&Config::memory_total);
    arrived(&Config::memory_per_tenant), arrived(&Config::memory_per_session);
    arrived(&Config::grace_period), arrived(&Config::warm_ttl);
    arrived(&Config::warm_communicators), arrived(&Config::max_sessions);
    arrived(&Config::max_sessions_per_tenant), arrived(&Config::max_communicators_per_session);
    arrived(&Config::max_regions_per_session), arrived(&Config::spin_us);
    arrived(&Config::gpu_enabled), arrived(&Config::gpu_devices), arrived(&Config::gpu_worker);
    arrived(&Config::gpu_mps);
    arrived(&Config::metrics_address), arrived(&Config::metrics_link_capacity);
    arrived(&Config::recorder_calls), arrived(&Config::recorder_transfers);
    arrived(&Config::recorder_memory), arrived(&Config::page_address);
    CHECK(set == 1);
  }
}

TEST_CASE("metrics are at an IP address and a port, or nowhere") {
  Config config;
  CHECK(config.metrics_address.empty());
  for (const char* text : {"9464", "localhost:9464", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000",
                           "::1:9464", "127.0.0.1:9464s"}) {
    INFO(text);
    const absl::Status status =
        ApplyToml(std::string("metrics.address = \"") + text + "\"", "x.toml", &config);
    CHECK(status.message() ==
          std::string("x.toml:1: metrics.address is \"") + text +
              "\"; expected an IP address and a port such as \"127.0.0.1:9464\", or \"\"");
  }
  REQUIRE(ApplyToml("[metrics]\naddress = \"0.0.0.0:0\"\n", "x.toml", &config).ok());
  CHECK(config.metrics_address == "0.0.0.0:0");
  REQUIRE(ApplyToml("[metrics]\naddress = \"\"\n", "x.toml", &config).ok());
  CHECK(config.metrics_address.empty());
}

TEST_CASE("a CPU or node that this process lacks is refused with its key and its place") {
  topology::Topology machine;
  machine.cpus = {0, 1};
  machine.numa_nodes = {{0, {0, 1}, 1 << 20}};
  const auto words = [&machine](const Config& config) {
    return std::string(CheckWorkerCpus(config, machine).status().message());
  };
  Config config;
  CHECK(*CheckWorkerCpus(config, machine) == machine.cpus);
  REQUIRE(ApplyToml("spin_us = 1\nworker_cpus = \"0-3\"\n", "etc/shuntd.toml", &config).ok());
  CHECK(words(config) ==
        "etc/shuntd.toml:2: worker_cpus is \"0-3\": CPU 2 is not among those of this process, 0-1");
  REQUIRE(ApplyFlag(*FindConfigKey("worker_cpus"), "7", &config).ok());
  CHECK(words(config).starts_with("--worker-cpus: worker_cpus is \"7\": CPU 7"));
  config.worker_cpus = "1";
  CHECK(*CheckWorkerCpus(config, machine) == topology::CpuList{1});
  REQUIRE(ApplyToml("numa_nodes = [0, 3]\n", "x.toml", &config).ok());
  CHECK(words(config).starts_with("x.toml:1: numa_nodes is [0, 3]: NUMA node 3"));
}

TEST_CASE("roots and object stores are taken apart") {
  Config config;
  REQUIRE(
      ApplyToml("[storage]\nroots = [\"a=/srv/a\", \"b=/b=c\"]\n"
                "s3 = [\"m=https://h:9000 region=eu path-style ca=/etc/ca.pem\", \"n=http://n\"]",
                "x.toml", &config)
          .ok());
  CHECK(config.storage_roots == std::vector<StorageRoot>{{"a", "/srv/a"}, {"b", "/b=c"}});
  REQUIRE(config.storage_s3.size() == 2);
  CHECK(config.storage_s3[0] == StorageEndpoint{"m", "https://h:9000", "eu", true, "/etc/ca.pem"});
  CHECK(config.storage_s3[1] == StorageEndpoint{"n", "http://n"});
  REQUIRE(ApplyToml("[storage]\nroots = []\n", "x.toml", &config).ok());
  CHECK(config.storage_roots.empty());
  const struct {
    const char* toml;
    const char* words;
  } wrong[] = {
      {"roots = \"a=/b\"", "is \"a=/b\""},
      {"roots = [\"a\"]", "\"a\", which is not NAME=VALUE"},
      {"roots = [\"=/b\"]", "\"=/b\", which is not NAME=VALUE"},
      {"roots = [\"a/b=/b\"]", "which is not NAME=VALUE"},
      {"roots = [\"a=b\"]", "whose path is not absolute"},
      {"roots = [\"a=/b\", \"a=/c\"]", "\"a=/c\", whose name is there twice"},
      {"s3 = [\"m=h:9000\"]", "whose URL does not begin with http"},
      {"s3 = [\"m=http://h fast\"]", "the unknown word \"fast\""},
      {"s3 = [\"m=http://h ca=x\"]", "the unknown word \"ca=x\""},
      {"s3 = [\"m=http://h user=x\"]", "the unknown word \"user=x\""},
      {"s3 = [\"m=http://h credentials=x\"]", "is not environment, file or web_identity"},
      {"s3 = [\"m=http://h credentials=file\"]", "without credentials_file"},
      {"s3 = [\"m=http://h credentials=web_identity credentials_file=/t role=r\"]",
       "without role and sts"},
      {"s3 = [\"m=http://h user=7\"]", "users but without credentials"},
      {"plugins = [\"p=p.so\"]", "whose path is not absolute"},
      {"plugins = [\"p=/p.so\", \"p=/q.so\"]", "whose name is there twice"},
      {"s3 = [1]", "is a list"},
  };
  for (const auto& c : wrong) {
    INFO(c.toml);
    const absl::Status status = ApplyToml(std::string("[storage]\n") + c.toml, "x.toml", &config);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(status.message().find("x.toml:2: storage.") == 0);
    CHECK(status.message().find(c.words) != absl::string_view::npos);
  }
}

TEST_CASE("GPUs are named by number or UUID, and other names say what is expected") {
  Config config;
  REQUIRE(ApplyToml("[gpu]\ndevices = [0, 3]\n", "x.toml", &config).ok());
  CHECK(config.gpu_devices == std::vector<std::string>{"0", "3"});
  REQUIRE(ApplyToml("[gpu]\ndevices = [\"GPU-0a1b2c3d\", \"all\"]\n", "x.toml", &config).ok());
  CHECK(config.gpu_devices == std::vector<std::string>{"GPU-0a1b2c3d", "all"});
  const struct {
    const char* toml;
    const char* words;
  } wrong[] = {
      {"devices = [\"first\"]\n",
       "gpu.devices has \"first\"; expected a list of \"all\", ordinals"},
      {"devices = [\"GPU-xyz\"]\n", "gpu.devices has \"GPU-xyz\""},
      {"devices = [-1]\n", "gpu.devices has \"-1\""},
      {"devices = []\n", "gpu.devices is empty"},
      {"enabled = \"yes\"\n", "gpu.enabled is \"yes\"; expected \"auto\", \"on\" or \"off\""},
      {"mps = \"on\"\n", "gpu.mps is \"on\"; expected \"off\" or \"use\""},
  };
  for (const auto& c : wrong) {
    const absl::Status status = ApplyToml(std::string("[gpu]\n") + c.toml, "x.toml", &config);
    INFO(status.message());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message().find(std::string("x.toml:2: ") + c.words) == 0);
  }
}

TEST_CASE("tables of stores are read as their lists are") {
  Config config;
  const absl::Status status = ApplyToml(
      "[[storage.s3]]\nname = \"m\"\nurl = \"https://h\"\npath_style = true\nregion = \"eu\"\n"
      "ca = \"/ca\"\ncredentials = \"web_identity\"\ncredentials_file = \"/token\"\nrole = \"r\"\n"
      "sts = \"https://sts\"\nusers = [1000, 1001]\n"
      "[[storage.s3]]\nurl = \"http://n\"\nname = \"n\"\npath_style = false\n"
      "[[storage.plugins]]\nname = \"p\"\nlibrary = \"/p.so\"\noptions = \"a=1, b = 2\"\n"
      "[[storage.plugins]]\nname = \"q\"\nlibrary = \"/q.so\"\n",
      "x.toml", &config);
  REQUIRE(status.ToString() == "OK");
  REQUIRE(config.storage_s3.size() == 2);
  StorageEndpoint expected{"m", "https://h", "eu", true, "/ca", "web_identity", "/token"};
  expected.role = "r";
  expected.sts = "https://sts";
  expected.users = {1000, 1001};
  CHECK(config.storage_s3[0] == expected);
  CHECK(config.storage_s3[1] == StorageEndpoint{"n", "http://n"});
  CHECK(config.storage_plugins ==
        std::vector<StoragePlugin>{{"p", "/p.so", "a=1, b = 2"}, {"q", "/q.so", ""}});
  const struct {
    const char* toml;
    const char* words;
  } wrong[] = {
      {"[[storage.s3]]\nname = \"m\"\n", "storage.s3 has a table without url"},
      {"[[storage.s3]]\nname = \"m\"\nurl = \"http://h\"\nfast = true\n", "\"fast=true\""},
      {"[[storage.s3]]\nname = \"m\"\nurl = \"http://h\"\nrole = \"a b\"\n", "role \"a b\""},
      {"[[storage.s3]]\nname = \"m\"\nurl = \"http://h\"\nrole = 1.5\n", "not all plain"},
      {"[[storage.plugins]]\nname = \"p\"\n", "storage.plugins has a table without library"},
      {"[[storage.plugins]]\nname = \"p\"\nlibrary = \"/p\"\nx = 1\n", "unknown key x"},
      {"[[storage.plugins]]\nname = \"p\"\nlibrary = \"/a dir/p.so\"\n",
       "library \"/a dir/p.so\", which holds a space"},
      {"[[storage.plugins]]\nname = \"p q\"\nlibrary = \"/p.so\"\n",
       "name \"p q\", which holds a space"},
      {"[[storage.s3]]\nname = \"p\"\nurl = \"http://h path-style\"\n",
       "url \"http://h path-style\", which holds a space"},
      {"[[storage.roots]]\nname = \"p\"\n", "storage.roots is a list of other things"},
  };
  for (const auto& c : wrong) {
    INFO(c.toml);
    const absl::Status status = ApplyToml(c.toml, "x.toml", &config);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(status.message().find("x.toml:1: ") == 0);
    CHECK(status.message().find(c.words) != absl::string_view::npos);
  }
}

TEST_CASE("values arrive") {
  Config config;
  REQUIRE(ApplyToml("worker_cpus = \"0-3\"\nnuma_nodes = [1]\nmemory_total = "
                    "\"2GiB\"\ngrace_period = \"250ms\"\n"
                    "socket_mode = \"0660\"\n",
                    "x.toml", &config)
              .ok());
  CHECK(config.worker_cpus == "0-3");
  CHECK(config.numa_nodes == std::vector<int>{1});
  CHECK(config.memory_total == 2ull << 30);
  CHECK(config.grace_period == 250ms);
  CHECK(config.socket_mode == 0660);
  REQUIRE(ApplyFlag(*FindConfigKey("numa_nodes"), "0,2", &config).ok());
  CHECK(config.numa_nodes == std::vector<int>{0, 2});
}

TEST_CASE("a misspelt key gets the one that was meant, a strange one none") {
  CHECK(SimilarConfigKey("worker_thread") == "worker_threads");
  CHECK(SimilarConfigKey("sockets") == "socket");
  CHECK(SimilarConfigKey("memory-total") == "memory_total");
  CHECK(SimilarConfigKey("x").empty());
  CHECK(SimilarConfigKey(std::string(1000, 'a')).empty());
}

TEST_CASE("a later error leaves the line of the error, not of the first key") {
  Config config;
  const absl::Status status =
      ApplyToml("spin_us = 1\n\n# comment\nspin = 2\n", "etc/shuntd.toml", &config);
  CHECK(std::string(status.message()).starts_with("etc/shuntd.toml:4: unknown key \"spin\""));
}

TEST_CASE("the section of the cluster has its own keys, and errors with their lines") {
  Config config;
  REQUIRE(ApplyToml("[cluster]\nlisten = \"127.0.0.1:0\"\nmembers = [\"b=127.0.0.1:7\"]\n",
                    "x.toml", &config)
              .ok());
  CHECK(config.cluster.listen == "127.0.0.1:0");
  CHECK(config.cluster.members == std::vector<std::string>{"b=127.0.0.1:7"});
  const auto error = [](const char* text) {
    Config other;
    return std::string(ApplyToml(text, "x.toml", &other).message());
  };
  CHECK(error("[cluster]\nlisten = 7") ==
        "x.toml:2: cluster.listen is 7; expected HOST:PORT such as \"10.0.0.1:7071\"");
  CHECK(error("[cluster]\n\nlistten = \"a:1\"") ==
        "x.toml:3: unknown key \"cluster.listten\"; did you mean \"cluster.listen\"?");
  CHECK(error("[socket]\nx = 1").starts_with("x.toml:1: socket is a table"));
  CHECK(error("cluster = 1").starts_with("x.toml:1: unknown key \"cluster\""));
  config.cluster.tls_cert = "x";
  CHECK(CheckConfig(config).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("limits must be in order") {
  Config config;
  config.memory_total = 10;
  config.memory_per_session = 11;
  CHECK(CheckConfig(config).code() == absl::StatusCode::kInvalidArgument);
  config.memory_per_session = 10;
  CHECK(CheckConfig(config).ok());
}

}  // namespace
}  // namespace shunt::daemon
