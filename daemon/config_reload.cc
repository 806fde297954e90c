#include "daemon/config_reload.h"

#include <algorithm>
#include <string_view>

namespace shunt::daemon {
namespace {

// What only bounds what comes next. Sockets, threads, CPUs, stores and the cluster stay as they are
// until the next start: running sessions depend on them.
constexpr std::string_view kLive[] = {
    "log_level",    "memory_total", "memory_per_tenant",  "memory_per_session",
    "grace_period", "warm_ttl",     "warm_communicators", "max_communicators_per_session",
};

// Defaults, but for this one key.
Config Only(const ConfigKey& key, const Config& config) {
  Config only;
  if (const auto it = config.set_to.find(key.name); it != config.set_to.end()) {
    key.set(&only, it->second).IgnoreError();  // it was set once already
  }
  return only;
}

}  // namespace

std::vector<const ConfigKey*> ChangedKeys(const Config& before, const Config& after) {
  std::vector<const ConfigKey*> changed;
  for (const ConfigKey& key : ConfigKeys()) {
    if (Only(key, before) != Only(key, after)) changed.push_back(&key);
  }
  return changed;
}

bool ChangesLive(const ConfigKey& key) {
  return std::find(std::begin(kLive), std::end(kLive), key.name) != std::end(kLive);
}

Config WithLiveKeys(const Config& running, const Config& read) {
  Config config = running;
  config.log_level = read.log_level;
  config.memory_total = read.memory_total;
  config.memory_per_tenant = read.memory_per_tenant;
  config.memory_per_session = read.memory_per_session;
  config.grace_period = read.grace_period;
  config.warm_ttl = read.warm_ttl;
  config.warm_communicators = read.warm_communicators;
  config.max_communicators_per_session = read.max_communicators_per_session;
  for (const std::string_view key : kLive) {
    config.set_to.erase(std::string(key));
    if (const auto it = read.set_to.find(key); it != read.set_to.end()) {
      config.set_to.insert(*it);
    }
  }
  return config;
}

}  // namespace shunt::daemon
