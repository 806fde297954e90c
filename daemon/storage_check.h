// What of the section [storage] can be found to be wrong when the daemon starts, without a network.
#pragma once

#include "absl/status/status.h"
#include "daemon/config.h"
#include "runtime/storage/s3/options.h"

namespace shunt::daemon {

// Errors name the key and where it was set. Loads plugins, and makes a store of each for a moment.
absl::Status CheckStorage(const Config& config);

// What the configuration says of an object store.
storage::S3Endpoint EndpointOf(const StorageEndpoint& config);
// The daemon's own keys for it; anonymous if it has none.
storage::S3CredentialSource SourceOf(const StorageEndpoint& config);

}  // namespace shunt::daemon
