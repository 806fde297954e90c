// What can be configured: one table of keys, which the file (TOML) and the command line share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/cluster/config.h"
#include "daemon/storage_config.h"
#include "runtime/topology/topology.h"

namespace shunt::daemon {

// A value as the file or the command line gives it.
using ConfigValue = cluster::ClusterValue;

struct Config {
  std::string socket = "/run/shunt/shuntd.sock";
  uint32_t socket_mode = 0600;
  std::string log_level = "info";
  std::string log_format = "text";
  int64_t worker_threads = 0;   // 0: one for each CPU of the budget, at most 8
  std::string worker_cpus;      // "": all
  std::vector<int> numa_nodes;  // empty: all
  // 0: half of the machine's memory; the same as memory_total; the same as memory_per_tenant.
  uint64_t memory_total = 0;
  uint64_t memory_per_tenant = 0;
  uint64_t memory_per_session = 0;
  std::chrono::nanoseconds grace_period = std::chrono::seconds(10);
  std::chrono::nanoseconds warm_ttl = std::chrono::minutes(10);
  int64_t warm_communicators = 256;
  int64_t max_sessions = 4096;
  int64_t max_sessions_per_tenant = 4096;
  int64_t max_communicators_per_session = 1024;
  int64_t max_regions_per_session = 4096;
  int64_t spin_us = -1;  // -1: 20 while CPUs are plenty, else 0

  std::string gpu_enabled = "auto";  // [gpu]; "on", "off"
  std::vector<std::string> gpu_devices = {"all"};
  std::string gpu_worker;       // "": the program beside this one
  std::string gpu_mps = "off";  // "use"

  std::vector<StorageRoot> storage_roots;  // [storage]
  std::vector<StorageEndpoint> storage_s3;
  std::vector<StoragePlugin> storage_plugins;

  std::string metrics_address;  // [metrics]; "": none
  uint64_t metrics_link_capacity = 0;

  cluster::ClusterConfig cluster;  // the section [cluster]

  // Where each key was set, for what is only found out later: "FILE:LINE" or "--flag"; and to what.
  std::map<std::string, std::string, std::less<>> set_at;
  std::map<std::string, ConfigValue, std::less<>> set_to;

  bool operator==(const Config&) const = default;
};

struct ConfigKey {
  const char* name;
  const char* expected;  // words: "an integer from 0 to 256"
  const char* help;
  const char* initial;  // the default, as a flag would give it; null: the help says
  // INVALID_ARGUMENT, saying what was seen, if the value isn't as `expected`.
  absl::Status (*set)(Config* config, const ConfigValue& value);
};
// The same through `key.set`, and remembers the value in set_to.
absl::Status SetKey(const ConfigKey& key, const ConfigValue& value, Config* config);
std::span<const ConfigKey> ConfigKeys();
// Null if there is none.
const ConfigKey* FindConfigKey(std::string_view name);
// "--worker-threads" for worker_threads.
std::string FlagOf(const ConfigKey& key);
// The key that looks most like `name`; "" if none does.
std::string_view SimilarConfigKey(std::string_view name);

// Sets the keys that `text`, TOML, names. INVALID_ARGUMENT: "PATH:LINE: key: what is wrong, what is
// expected".
absl::Status ApplyToml(std::string_view text, std::string_view path, Config* config);
// The same from a file; NOT_FOUND if it can't be opened.
absl::Status ApplyConfigFile(const std::string& path, Config* config);
// Sets one key from a command line argument: lists are "0,1".
absl::Status ApplyFlag(const ConfigKey& key, std::string_view text, Config* config);
// What no key can check alone.
absl::Status CheckConfig(const Config& config);
// The CPUs for worker threads. INVALID_ARGUMENT, naming the key and where it was set, if it asks
// for a CPU or a NUMA node that this process hasn't got.
absl::StatusOr<topology::CpuList> CheckWorkerCpus(const Config& config,
                                                  const topology::Topology& topology);

// "8GiB", "512 MiB", "1.5GB", "4096" (bytes).
absl::StatusOr<uint64_t> ParseSize(std::string_view text);
// "500us", "10s", "2m", "1h".
absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text);

}  // namespace shunt::daemon
