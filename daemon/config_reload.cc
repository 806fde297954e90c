#include "daemon/config_reload.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace shunt::daemon {
namespace {

// What only bounds what comes next. Sockets, threads, CPUs, stores and the cluster stay as they are
// until the next start: running sessions depend on them.
struct LiveKey {
  std::string_view name;
  void (*copy)(Config* to, const Config& from);
};
template <auto kMember>
constexpr LiveKey Live(std::string_view name) {
  return {name, [](Config* to, const Config& from) { to->*kMember = from.*kMember; }};
}
constexpr LiveKey kLive[] = {
    Live<&Config::log_level>("log_level"),
    Live<&Config::memory_total>("memory_total"),
    Live<&Config::memory_per_tenant>("memory_per_tenant"),
    Live<&Config::memory_per_session>("memory_per_session"),
    Live<&Config::grace_period>("grace_period"),
    Live<&Config::warm_ttl>("warm_ttl"),
    Live<&Config::warm_communicators>("warm_communicators"),
    Live<&Config::max_communicators_per_session>("max_communicators_per_session"),
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
  return std::any_of(std::begin(kLive), std::end(kLive),
                     [&](const LiveKey& live) { return live.name == key.name; });
}

Config WithLiveKeys(const Config& running, const Config& read) {
  Config config = running;
  for (const LiveKey& live : kLive) {
    live.copy(&config, read);
    config.set_to.erase(std::string(live.name));
    if (const auto it = read.set_to.find(live.name); it != read.set_to.end()) {
      config.set_to.insert(*it);
    }
  }
  return config;
}

}  // namespace shunt::daemon
