// Regions that are objects: one store for each set of keys that a session brings.
#include <pthread.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/transfer/store_regions.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"
#ifdef SHUNT_HAVE_S3
#include "runtime/storage/s3/s3_store.h"
#endif

namespace shunt::daemon {
namespace {

// Each is a thread, and its connections.
constexpr size_t kHostsMax = 8;

#ifdef SHUNT_HAVE_S3
absl::StatusOr<std::unique_ptr<storage::Store>> MakeStore(const storage::S3Endpoint& endpoint,
                                                          const StoreRegions::ObjectPlace& place) {
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
absl::StatusOr<std::unique_ptr<storage::Store>> MakeStore(const storage::S3Endpoint&,
                                                          const StoreRegions::ObjectPlace&) {
  return absl::UnimplementedError("this shuntd was built without S3");
}
#endif

bool Same(const StoreRegions::ObjectPlace& a, const StoreRegions::ObjectPlace& b) {
  return a.endpoint == b.endpoint && a.access_key == b.access_key && a.secret_key == b.secret_key &&
         a.session_token == b.session_token;
}

std::string ObjectLabel(const std::string& bucket, const std::string& key) {
  return absl::StrCat("object '", Printable(key), "' of bucket '", Printable(bucket), "'");
}

}  // namespace

absl::StatusOr<std::shared_ptr<storage::StoreHost>> StoreRegions::Objects(
    const SessionPtr& session, const ObjectPlace& place) {
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
  const std::lock_guard lock(mutex_);
  if (session->ended.load()) return absl::CancelledError("the session has ended");
  if (stopped_) return absl::UnavailableError("shuntd is stopping and opens nothing");
  ForgetFinishedLocked();
  OfSession& of = sessions_[session->id];
  for (const ObjectHost& host : of.hosts) {
    if (Same(host.place, place)) return host.host;
  }
  if (of.hosts.size() >= kHostsMax) {
    // One whose objects are all closed makes room.
    const auto unused = std::find_if(of.hosts.begin(), of.hosts.end(), [](const ObjectHost& host) {
      return host.host.use_count() == 1;
    });
    if (unused == of.hosts.end()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("session ", session->id, " has objects open with ", kHostsMax,
                       " endpoints and keys, the most; close some"));
    }
    unused->host->BeginStop();
    leaving_.push_back(std::move(unused->host));
    of.hosts.erase(unused);
  }
  SHUNT_ASSIGN_OR_RETURN(auto store, MakeStore(endpoint->endpoint, place));
  SHUNT_ASSIGN_OR_RETURN(std::shared_ptr<storage::StoreHost> host,
                         storage::StoreHost::Start(std::move(store), [] {
                           ::pthread_setname_np(::pthread_self(), "shunt-objects");
                         }));
  of.hosts.push_back({place, host});
  return host;
}

void StoreRegions::OpenObject(const SessionPtr& session, const ObjectPlace& place,
                              storage::OpenRequest request, Opened opened) {
  auto host = Objects(session, place);
  if (!host.ok()) return opened(host.status());
  auto region = std::make_shared<StoreRegion>();
  region->is_object = true;
  region->host = *std::move(host);
  region->label = ObjectLabel(request.container, request.name);
  Open(session, std::move(region), std::move(request), std::move(opened));
}

void StoreRegions::CreateObject(const SessionPtr& session, const ObjectPlace& place,
                                storage::BeginRequest request, Opened opened) {
  auto host = Objects(session, place);
  if (!host.ok()) return opened(host.status());
  auto region = std::make_shared<StoreRegion>();
  region->is_object = true;
  region->host = *std::move(host);
  region->label = ObjectLabel(request.container, request.name);
  Create(session, std::move(region), std::move(request), std::move(opened));
}

}  // namespace shunt::daemon
