// What of the section [storage] can be found to be wrong when the daemon starts, without a network.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "daemon/config.h"
#include "runtime/storage/s3/options.h"

namespace shunt::daemon {

// How far plugins are looked at.
enum class PluginCheck : uint8_t {
  kFile,   // whether the library may be loaded; loads nothing
  kTable,  // loads it, and checks what it exports; makes nothing
  kStore,  // makes a store of each for a moment, which may take hold of what the plugin keeps
};

// Errors name the key and where it was set.
absl::Status CheckStorage(const Config& config, PluginCheck plugins);

// What the configuration says of an object store.
storage::S3Endpoint EndpointOf(const StorageEndpoint& config);
// The daemon's own keys for it; anonymous if it has none.
storage::S3CredentialSource SourceOf(const StorageEndpoint& config);

}  // namespace shunt::daemon
