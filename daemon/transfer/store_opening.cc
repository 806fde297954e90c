// Where the stores of regions come from: one for a user's files, one for each endpoint and set of
// keys of a session. Their threads make them, as that may wait for a disk.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/log.h"
#include "daemon/transfer/store_regions.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"
#include "runtime/storage/posix/posix_store.h"
#include "runtime/storage/posix/root.h"
#ifdef SHUNT_HAVE_S3
#include "runtime/storage/s3/s3_store.h"
#endif

namespace shunt::daemon {
namespace {

using MadeStore = absl::StatusOr<std::unique_ptr<storage::Store>>;

#ifdef SHUNT_HAVE_S3
MadeStore MakeObjects(const storage::S3Endpoint& endpoint, const StoreRegions::ObjectPlace& place) {
  using Kind = storage::S3CredentialSource::Kind;
  storage::S3Options options;
  options.endpoint = endpoint;
  options.credentials.kind = place.access_key.empty() ? Kind::kAnonymous : Kind::kStatic;
  options.credentials.access_key = place.access_key;
  options.credentials.secret_key = place.secret_key;
  options.credentials.session_token = place.session_token;
  return storage::S3Store::Make(std::move(options));
}
#else
MadeStore MakeObjects(const storage::S3Endpoint&, const StoreRegions::ObjectPlace&) {
  return absl::UnimplementedError("this shuntd was built without S3");
}
#endif

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

absl::StatusOr<std::shared_ptr<storage::StoreHost>> StoreRegions::HostOf(const Session& session,
                                                                         const Place& place,
                                                                         const std::string&) {
  if (!place.has_value()) {
    storage::PosixOptions posix;
    posix.roots = options_.roots;
    return hosts_.Get(
        {{.session = 0, .tenant = session.peer.uid}, "files", "files"},
        [posix]() -> MadeStore { return InOwnWords("files", storage::PosixStore::Make(posix)); });
  }
  const auto endpoint =
      std::find_if(options_.endpoints.begin(), options_.endpoints.end(),
                   [&](const Endpoint& known) { return known.name == place->endpoint; });
  if (endpoint == options_.endpoints.end()) {
    return absl::NotFoundError(absl::StrCat(
        "endpoint '", Printable(place->endpoint), "' is not configured (storage.s3), expected ",
        options_.endpoints.empty()
            ? "one, but there is none"
            : absl::StrJoin(options_.endpoints, ", ", [](std::string* out, const Endpoint& known) {
                absl::StrAppend(out, known.name);
              })));
  }
  // No part can look like the next: each says how long it is.
  std::string key;
  for (const std::string* part :
       {&place->endpoint, &place->access_key, &place->secret_key, &place->session_token}) {
    absl::StrAppend(&key, part->size(), ":", *part);
  }
  return hosts_.Get(
      {session.owner(), std::move(key), absl::StrCat("objects of ", endpoint->name)},
      [endpoint = endpoint->endpoint, place = *place] { return MakeObjects(endpoint, place); });
}

}  // namespace shunt::daemon
