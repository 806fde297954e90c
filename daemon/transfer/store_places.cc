// Where the stores of regions come from: one for a user's files, one for each plugin, one
// for each endpoint and set of keys of a session. Their threads make them, as that may wait for a
// disk.
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/log.h"
#include "daemon/transfer/store_regions.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"
#include "runtime/storage/plugin/plugin_store.h"
#include "runtime/storage/posix/posix_store.h"
#include "runtime/storage/posix/root.h"
#ifdef SHUNT_HAVE_S3
#include "runtime/storage/s3/s3_store.h"
#endif

namespace shunt::daemon {
namespace {

using MadeStore = absl::StatusOr<std::unique_ptr<storage::Store>>;
using Tally = std::shared_ptr<storage::StoreTally>;

#ifdef SHUNT_HAVE_S3
MadeStore MakeObjects(const storage::S3Endpoint& endpoint,
                      const storage::S3CredentialSource& credentials, Tally tally) {
  storage::S3Options options;
  options.tally = std::move(tally);
  options.endpoint = endpoint;
  options.credentials = credentials;
  return storage::S3Store::Make(std::move(options));
}
#else
MadeStore MakeObjects(const storage::S3Endpoint&, const storage::S3CredentialSource&, Tally) {
  return absl::UnimplementedError("this shuntd was built without S3");
}
#endif

storage::S3CredentialSource KeysOf(const StoreRegions::ObjectPlace& place) {
  using Kind = storage::S3CredentialSource::Kind;
  storage::S3CredentialSource source;
  source.kind = place.access_key.empty() ? Kind::kAnonymous : Kind::kStatic;
  source.access_key = place.access_key;
  source.secret_key = place.secret_key;
  source.session_token = place.session_token;
  return source;
}

// That the user may sign with the daemon's keys.
absl::Status CheckDaemonKeys(const StoreRegions::Endpoint& endpoint, uint32_t user) {
  if (!endpoint.has_credentials()) {
    return absl::FailedPreconditionError(
        absl::StrCat("endpoint '", endpoint.name,
                     "' has no credentials of the daemon's (storage.s3), expected the session's"));
  }
  const bool listed =
      std::find(endpoint.users.begin(), endpoint.users.end(), user) != endpoint.users.end();
  if (listed || user == 0 || user == ::geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("endpoint '", endpoint.name, "': user ", user,
                   " may not use the daemon's credentials, expected one that storage.s3 lists, or "
                   "the session's own credentials"));
}

// A store that is made of the daemon's own configuration: what is wrong with that goes into the log
// alone.
MadeStore InOwnWords(const std::string& words, MadeStore made) {
  if (made.ok()) return made;
  LogWarn("a store could not be made", {{"store", words}, {"error", made.status().ToString()}});
  return absl::Status(made.status().code(), absl::StrCat("the store of ", words,
                                                         " could not be made; shuntd's log says "
                                                         "why"));
}

}  // namespace

absl::Status StoreRegions::Start() {
  for (const storage::PosixRoot& root : options_.roots) {
    SHUNT_RETURN_IF_ERROR(storage::Root::Open(root.name, root.path).status());
  }
  return absl::OkStatus();
}

StoreRegions::Host StoreRegions::HostOf(const Session& session, const Place& place,
                                        const std::string& container) {
  if (place.has_value()) return ObjectsOf(session, *place);
  const auto plugin = std::find_if(options_.plugins.begin(), options_.plugins.end(),
                                   [&](const Plugin& known) { return known.name == container; });
  if (plugin == options_.plugins.end()) return FilesOf(session);
  const std::string words = absl::StrCat("plugin ", plugin->name);
  return hosts_.Get({{.session = 0, .tenant = session.peer.uid}, words, words},
                    [words, plugin = *plugin]() -> MadeStore {
                      return InOwnWords(words,
                                        storage::PluginStore::Load(plugin.library, plugin.options));
                    });
}

StoreRegions::Host StoreRegions::FilesOf(const Session& session) {
  storage::PosixOptions posix;
  posix.roots = options_.roots;
  return hosts_.Get(
      {{.session = 0, .tenant = session.peer.uid}, "files", "files"},
      [posix]() -> MadeStore { return InOwnWords("files", storage::PosixStore::Make(posix)); });
}

StoreRegions::Host StoreRegions::ObjectsOf(const Session& session, const ObjectPlace& place) {
  const auto endpoint =
      std::find_if(options_.endpoints.begin(), options_.endpoints.end(),
                   [&](const Endpoint& known) { return known.name == place.endpoint; });
  if (endpoint == options_.endpoints.end()) {
    return absl::NotFoundError(absl::StrCat(
        "endpoint '", Printable(place.endpoint), "' is not configured (storage.s3), expected ",
        options_.endpoints.empty()
            ? "one, but there is none"
            : absl::StrJoin(options_.endpoints, ", ", [](std::string* out, const Endpoint& known) {
                absl::StrAppend(out, known.name);
              })));
  }
  const std::string words = absl::StrCat("objects of ", endpoint->name);
  const Tally tally = options_.tallies != nullptr ? options_.tallies->Of(words) : nullptr;
  if (place.daemon_keys) {
    if (!place.access_key.empty()) {
      return absl::InvalidArgumentError(
          "daemon_identity is asked for and keys are given, expected one of them");
    }
    SHUNT_RETURN_IF_ERROR(CheckDaemonKeys(*endpoint, session.peer.uid));
    // All sessions of the user share it, and keys are got anew for all of them at once.
    return hosts_.Get({{.session = 0, .tenant = session.peer.uid}, words, words},
                      [words, tally, endpoint = *endpoint]() -> MadeStore {
                        return InOwnWords(
                            words, MakeObjects(endpoint.endpoint, endpoint.credentials, tally));
                      });
  }
  // No part can look like the next: each says how long it is.
  std::string key;
  for (const std::string* part :
       {&place.endpoint, &place.access_key, &place.secret_key, &place.session_token}) {
    absl::StrAppend(&key, part->size(), ":", *part);
  }
  return hosts_.Get({session.owner(), std::move(key), words},
                    [tally, endpoint = endpoint->endpoint, keys = KeysOf(place)] {
                      return MakeObjects(endpoint, keys, tally);
                    });
}

}  // namespace shunt::daemon
