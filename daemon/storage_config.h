// The keys of the section [storage]: what sessions may name in it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
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
  // The daemon's own keys, and who may use them beside root and the daemon's own user: "": there
  // are none, and sessions bring theirs; "environment", "file" or "web_identity".
  std::string credentials = {};
  std::string credentials_file = {};  // "file", or the token of "web_identity"
  std::string profile = "default";    // "file"
  std::string role = {};              // "web_identity"
  std::string sts = {};               // "web_identity"
  std::vector<uint32_t> users = {};
  bool operator==(const StorageEndpoint&) const = default;
};

// A store that a library brings (runtime/storage/plugin).
struct StoragePlugin {
  std::string name;
  std::string library;
  std::string options = {};
  bool operator==(const StoragePlugin&) const = default;
};

inline constexpr char kRootWords[] =
    "a list of NAME=PATH such as [\"models=/srv/models\"], with absolute paths; as a flag "
    "models=/srv/models,cache=/var/cache/kv";
inline constexpr char kS3Words[] =
    "a list of NAME=URL, with region=R, path-style, ca=FILE, credentials=environment, file or "
    "web_identity, credentials_file=FILE, profile=P, role=ARN, sts=URL and user=UID (once for "
    "each) "
    "behind it where they are needed, such as [\"minio=https://10.0.0.9:9000 path-style\"]; or "
    "tables "
    "[[storage.s3]]";
inline constexpr char kPluginWords[] =
    "a list of NAME=LIBRARY, an absolute path, with the plugin's options behind it, such as "
    "[\"cache=/usr/lib/shunt/cache.so size=1G\"]; or tables [[storage.plugins]] with name, library "
    "and options";

// INVALID_ARGUMENT says what was seen.
absl::StatusOr<std::vector<StorageRoot>> ParseRoots(const std::vector<std::string>& texts);
absl::StatusOr<std::vector<StorageEndpoint>> ParseEndpoints(const std::vector<std::string>& texts);
absl::StatusOr<std::vector<StoragePlugin>> ParsePlugins(const std::vector<std::string>& texts);

// A table of the section, [[storage.s3]] or [[storage.plugins]], as what stands in its list: keys
// in any order, with all values of each. INVALID_ARGUMENT names the key.
using StorageTable = std::vector<std::pair<std::string, std::vector<std::string>>>;
absl::StatusOr<std::string> EndpointText(const StorageTable& table);
absl::StatusOr<std::string> PluginText(const StorageTable& table);

}  // namespace shunt::daemon
