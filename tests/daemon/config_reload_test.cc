#include "daemon/config_reload.h"

#include <catch2/catch.hpp>

namespace shunt::daemon {
namespace {

using namespace std::chrono_literals;

Config Read(std::string_view toml) {
  Config config;
  REQUIRE(ApplyToml(toml, "x.toml", &config).ok());
  return config;
}

std::vector<std::string> Changed(std::string_view before, std::string_view after) {
  std::vector<std::string> names;
  for (const ConfigKey* key : ChangedKeys(Read(before), Read(after))) names.push_back(key->name);
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("keys that differ are found in every section, in the table's order") {
  CHECK(Changed("", "").empty());
  CHECK(Changed("log_level = \"debug\"", "log_level = \"warn\"") == Names{"log_level"});
  CHECK(Changed("spin_us = 5\n[cluster]\nname = \"a\"",
                "memory_total = 5\n[cluster]\nname = \"b\"\n[storage]\nroots = [\"a=/b\"]") ==
        Names{"memory_total", "spin_us", "storage.roots", "cluster.name"});
}

TEST_CASE("a key that is taken out has its default again") {
  CHECK(Changed("worker_threads = 3", "") == Names{"worker_threads"});
}

TEST_CASE("the same value written otherwise is no change") {
  CHECK(Changed("memory_total = \"1GiB\"", "memory_total = 1073741824").empty());
  CHECK(Changed("", "log_level = \"info\"\nspin_us = -1").empty());
  CHECK(Changed("grace_period = \"10s\"", "").empty());
}

TEST_CASE("a flag counts as the file does") {
  Config flagged = Read("spin_us = 1");
  REQUIRE(ApplyFlag(*FindConfigKey("spin_us"), "7", &flagged).ok());
  CHECK(ChangedKeys(Read("spin_us = 7"), flagged).empty());
  CHECK(ChangedKeys(Read("spin_us = 1"), flagged).size() == 1);
}

TEST_CASE("every live key and no other arrives in the running configuration") {
  const Config running = Read("worker_threads = 3\nlog_level = \"error\"");
  const Config read = Read(
      "socket = \"/x\"\nsocket_mode = \"0666\"\nlog_level = \"debug\"\nlog_format = \"json\"\n"
      "worker_threads = 4\nworker_cpus = \"0\"\nnuma_nodes = [0]\nmemory_total = 4096\n"
      "memory_per_tenant = 4095\nmemory_per_session = 4094\ngrace_period = \"1s\"\n"
      "warm_ttl = \"1m\"\nwarm_communicators = 7\nmax_sessions = 7\nmax_sessions_per_tenant = 7\n"
      "max_communicators_per_session = 7\nmax_regions_per_session = 7\nspin_us = 7\n");
  const Config now = WithLiveKeys(running, read);
  // What still differs is what waits for the next start.
  for (const ConfigKey* key : ChangedKeys(now, read)) {
    INFO(key->name);
    CHECK_FALSE(ChangesLive(*key));
  }
  for (const ConfigKey* key : ChangedKeys(running, now)) {
    INFO(key->name);
    CHECK(ChangesLive(*key));
  }
  CHECK(now.worker_threads == 3);
  CHECK(now.socket == Config().socket);
  CHECK(now.log_level == "debug");
  CHECK(now.grace_period == 1s);
  CHECK(now.memory_total == 4096);
  CHECK(now.memory_per_tenant == 4095);
  CHECK(now.memory_per_session == 4094);
  CHECK(now.warm_ttl == 1min);
  CHECK(now.warm_communicators == 7);
  CHECK(now.max_communicators_per_session == 7);
}

}  // namespace
}  // namespace shunt::daemon
