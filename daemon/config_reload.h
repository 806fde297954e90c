// What a configuration that is read again can change while the daemon runs.
#pragma once

#include <vector>

#include "daemon/config.h"

namespace shunt::daemon {

// The keys whose values differ, in the order of ConfigKeys. A value that is only written otherwise
// ("1GiB", 1073741824, or the default spelt out) does not differ.
std::vector<const ConfigKey*> ChangedKeys(const Config& before, const Config& after);

// True if a running daemon takes the key's new value; the others wait for its next start.
bool ChangesLive(const ConfigKey& key);

// `running` with the values of `read` for all keys that change live.
Config WithLiveKeys(const Config& running, const Config& read);

}  // namespace shunt::daemon
