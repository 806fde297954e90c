// The keys of the section [storage]: what sessions may name in it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace shunt::daemon {

// A directory below which sessions may name files.
struct StorageRoot {
  std::string name;
  std::string path;
  bool operator==(const StorageRoot&) const = default;
};

// An object store that sessions may name.
struct StorageEndpoint {
  std::string name;
  std::string url;
  std::string region = "us-east-1";
  bool path_style = false;
  std::string ca_file = {};
  bool operator==(const StorageEndpoint&) const = default;
};

inline constexpr char kRootWords[] =
    "a list of NAME=PATH such as [\"models=/srv/models\"], with absolute paths; as a flag "
    "models=/srv/models,cache=/var/cache/kv";
inline constexpr char kS3Words[] =
    "a list of NAME=URL, with region=R, path-style and ca=FILE behind it where they are needed, "
    "such as [\"minio=https://10.0.0.9:9000 path-style\"]";

// INVALID_ARGUMENT says what was seen.
absl::StatusOr<std::vector<StorageRoot>> ParseRoots(const std::vector<std::string>& texts);
absl::StatusOr<std::vector<StorageEndpoint>> ParseEndpoints(const std::vector<std::string>& texts);

}  // namespace shunt::daemon
