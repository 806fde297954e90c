// How a region comes to be: it is counted, its store opens it, its session hears of it.
#include "absl/strings/str_cat.h"
#include "daemon/transfer/store_regions.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::daemon {
namespace {

absl::Status Ended() { return absl::CancelledError("the session has ended"); }

std::string LabelOf(bool object, const std::string& container, const std::string& name) {
  if (object) {
    return absl::StrCat("object '", Printable(name), "' of bucket '", Printable(container), "'");
  }
  if (container.empty() && name.empty()) return "file that the client opened";
  return absl::StrCat("file '", Printable(name), "' of root '", Printable(container), "'");
}

}  // namespace

absl::Status StoreRegions::Reserve(const SessionPtr& session) {
  const std::lock_guard lock(mutex_);
  if (session->ended.load()) return Ended();
  if (stopped_) return absl::UnavailableError("shuntd is stopping and opens nothing");
  OfSession& of = SessionLocked(*session);
  OfUser& user = users_[session->peer.uid];
  if (of.regions.size() + of.opening >= options_.session_regions) {
    return absl::ResourceExhaustedError(absl::StrCat("max_regions_per_session: session ",
                                                     session->id, " has ", options_.session_regions,
                                                     " files and objects already"));
  }
  if (user.regions >= options_.user_regions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("user ", session->peer.uid, " has ", options_.user_regions,
                     " files and objects in all sessions, half of what all users may have "
                     "together; close some"));
  }
  if (total_ >= options_.total_regions) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "all sessions together have ", options_.total_regions,
        " files and objects, which are as many as the daemon's descriptors (RLIMIT_NOFILE) allow"));
  }
  ++of.opening;
  ++user.regions;
  ++total_;
  return absl::OkStatus();
}

absl::StatusOr<StoreRegions::Opening> StoreRegions::Begin(const SessionPtr& session,
                                                          const Place& place,
                                                          const std::string& container,
                                                          const std::string& name,
                                                          const Opened& opened) {
  Opening opening;
  opening.region = std::make_shared<StoreRegion>();
  opening.region->owner = session->owner();
  opening.region->is_object = place.has_value();
  opening.region->label = LabelOf(place.has_value(), container, name);
  SHUNT_RETURN_IF_ERROR(Reserve(session));
  // After it is counted: the end of the user's last session ends the user's stores.
  absl::Status status;
  if (auto host = HostOf(*session, place, container); host.ok()) {
    opening.region->host = *std::move(host);
    auto mine = Await(*session, [opened](const absl::Status& status) { opened(status); });
    status = mine.status();
    if (mine.ok()) opening.mine = *std::move(mine);
  } else {
    status = host.status();
  }
  if (status.ok()) return opening;
  return Take(session, opening.region, {.token = 0, .status = status});
}

absl::Status StoreRegions::Take(const SessionPtr& session,
                                const std::shared_ptr<StoreRegion>& region,
                                const storage::Completion& completion) {
  if (completion.status.ok()) {
    region->object = completion.object;
    if (!region->draft) region->bytes = completion.bytes;
    region->id = ids_->NewId();
  }
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session->id);
  if (of == sessions_.end()) {  // SessionGone has counted it out
    return completion.status.ok() ? Ended() : completion.status;
  }
  --of->second.opening;
  if (!completion.status.ok()) {
    CountOutLocked(region->owner, 1);
    return completion.status;
  }
  of->second.regions.emplace(region->id, Entry{region, std::make_shared<std::string>()});
  return absl::OkStatus();
}

storage::StoreHost::Done StoreRegions::TakeAndTell(const SessionPtr& session, Opening opening,
                                                   Opened opened) {
  return [this, session, opening = std::move(opening),
          opened = std::move(opened)](const storage::Completion& completion) {
    const absl::Status status = Take(session, opening.region, completion);
    if (!opening.mine()) return;  // the session has ended, and its caller has heard of that
    if (!status.ok()) return opened(status);
    opened(opening.region);
  };
}

void StoreRegions::Open(const SessionPtr& session, const Place& place, storage::OpenRequest request,
                        ClientFd descriptor, Opened opened) {
  const auto opening = Begin(session, place, request.container, request.name, opened);
  if (!opening.ok()) return opened(opening.status());
  const StoreRegion& region = *opening->region;
  opening->region->writable = request.access == storage::Access::kReadWrite;
  // It stays the client's until the store has it: one that gets no request drops it on this thread.
  const auto asked = std::make_shared<storage::OpenRequest>(std::move(request));
  const auto sent = std::make_shared<ClientFd>(std::move(descriptor));
  region.host->Open(
      [asked, sent] {
        if (sent->valid()) asked->descriptor = sent->Release();
        return std::move(*asked);
      },
      TakeAndTell(session, *opening, std::move(opened)));
}

void StoreRegions::Create(const SessionPtr& session, const Place& place,
                          storage::BeginRequest request, Opened opened) {
  const auto opening = Begin(session, place, request.container, request.name, opened);
  if (!opening.ok()) return opened(opening.status());
  StoreRegion& region = *opening->region;
  region.writable = region.draft = true;
  region.bytes = request.bytes;
  request.budget = [ids = ids_, owner = session->owner()](
                       uint64_t bytes,
                       std::string_view what) -> absl::StatusOr<std::shared_ptr<void>> {
    SHUNT_RETURN_IF_ERROR(ids->Charge(owner, bytes, what));
    return std::shared_ptr<void>(nullptr,
                                 [ids, owner, bytes](void*) { ids->Release(owner, bytes); });
  };
  region.host->Begin(std::move(request), TakeAndTell(session, *opening, std::move(opened)));
}

}  // namespace shunt::daemon
