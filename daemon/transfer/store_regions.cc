#include "daemon/transfer/store_regions.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::daemon {
namespace {

// Calls of one session that wait for stores.
constexpr size_t kWaitingMax = 1024;

absl::Status NoRegion(uint64_t id) {
  return absl::NotFoundError(absl::StrCat("region ", id, ": this session has no such region"));
}

absl::Status Stopping() { return absl::UnavailableError("shuntd is stopping and opens nothing"); }

absl::Status Ended() { return absl::CancelledError("the session has ended"); }

std::string LabelOf(bool object, const std::string& container, const std::string& name) {
  if (object) {
    return absl::StrCat("object '", Printable(name), "' of bucket '", Printable(container), "'");
  }
  if (container.empty() && name.empty()) return "file that the client opened";
  return absl::StrCat("file '", Printable(name), "' of root '", Printable(container), "'");
}

}  // namespace

StoreRegion::~StoreRegion() {
  if (object != 0 && !over.load()) host->Close(object);
}

StoreRegions::StoreRegions(Options options, memory::RegionTable* ids)
    : options_(std::move(options)), ids_(ids), hosts_(options_.hosts) {}

StoreRegions::~StoreRegions() { Stop(DeadlineAfterNs(std::chrono::seconds(1))); }

void StoreRegions::Stop(int64_t deadline_ns) {
  std::vector<Told> waiting;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (auto& [id, of] : sessions_) {
      for (auto& [number, told] : of.waiting) waiting.push_back(std::move(told));
      of.waiting.clear();
    }
  }
  for (const Told& told : waiting) told(absl::UnavailableError("shuntd is stopping"));
  hosts_.Stop(deadline_ns);
}

StoreRegions::OfSession& StoreRegions::SessionLocked(const Session& session) {
  const auto [place, first] = sessions_.try_emplace(session.id);
  if (first) {
    place->second.owner = session.owner();
    ++users_[session.peer.uid].sessions;
  }
  return place->second;
}

absl::StatusOr<std::function<bool()>> StoreRegions::Await(const Session& session, Told told) {
  const std::lock_guard lock(mutex_);
  // SessionGone comes after this is set, and takes the lock.
  if (session.ended.load()) return Ended();
  if (stopped_) return Stopping();
  OfSession& of = SessionLocked(session);
  if (of.waiting.size() >= kWaitingMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("session ", session.id, " has ", kWaitingMax,
                     " calls that wait for files and objects, the most; wait for some"));
  }
  const uint64_t number = next_wait_++;
  of.waiting.emplace(number, std::move(told));
  return std::function<bool()>([this, id = session.id, number] {
    const std::lock_guard lock(mutex_);
    const auto of = sessions_.find(id);
    return of != sessions_.end() && of->second.waiting.erase(number) != 0;
  });
}

absl::Status StoreRegions::Reserve(const SessionPtr& session) {
  const std::lock_guard lock(mutex_);
  if (session->ended.load()) return Ended();
  if (stopped_) return Stopping();
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

void StoreRegions::CountOutLocked(memory::Owner owner, uint64_t regions) {
  total_ -= regions;
  users_[owner.tenant].regions -= regions;
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
  if (descriptor.valid()) request.descriptor = descriptor.Release();
  region.host->Open(std::move(request), TakeAndTell(session, *opening, std::move(opened)));
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

absl::StatusOr<StoreRegions::Entry*> StoreRegions::FindLocked(uint64_t session, uint64_t id) {
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return NoRegion(id);
  const auto found = of->second.regions.find(id);
  if (found == of->second.regions.end()) return NoRegion(id);
  return &found->second;
}

absl::StatusOr<std::shared_ptr<StoreRegion>> StoreRegions::Find(uint64_t session,
                                                                uint64_t id) const {
  const std::lock_guard lock(mutex_);
  SHUNT_ASSIGN_OR_RETURN(Entry* const entry,
                         const_cast<StoreRegions*>(this)->FindLocked(session, id));
  return entry->region;
}

absl::StatusOr<StoreUse> StoreRegions::Use(uint64_t session, uint64_t id, std::string words) {
  const std::lock_guard lock(mutex_);
  SHUNT_ASSIGN_OR_RETURN(Entry* const entry, FindLocked(session, id));
  *entry->use = std::move(words);
  return StoreUse{entry->region, entry->use};
}

// Out of the table. New uses are made under the lock only, so the count can't rise here.
absl::StatusOr<std::shared_ptr<StoreRegion>> StoreRegions::TakeOut(uint64_t session, uint64_t id,
                                                                   bool in_use_too, bool draft) {
  const std::lock_guard lock(mutex_);
  SHUNT_ASSIGN_OR_RETURN(Entry* const entry, FindLocked(session, id));
  if (draft && !entry->region->draft) {
    return absl::FailedPreconditionError(absl::StrCat("region ", id, " (", entry->region->label,
                                                      ") was opened, expected a draft that was "
                                                      "created"));
  }
  if (!in_use_too && entry->use.use_count() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("region ", id, " (", entry->region->label, ") is in use by ", *entry->use));
  }
  std::shared_ptr<StoreRegion> region = std::move(entry->region);
  sessions_[session].regions.erase(id);
  CountOutLocked(region->owner, 1);
  return region;
}

storage::StoreHost::Done StoreRegions::Tell(std::function<bool()> mine, Told told,
                                            std::shared_ptr<StoreUse> use) {
  return [mine = std::move(mine), told = std::move(told),
          use = std::move(use)](const storage::Completion& completion) {
    *use = {};  // its owner may free it as soon as it knows
    if (mine()) told(completion.status);
  };
}

void StoreRegions::Commit(const SessionPtr& session, uint64_t id, int64_t deadline_ns, Told told) {
  const auto mine = Await(*session, told);
  if (!mine.ok()) return told(mine.status());
  const auto region = TakeOut(session->id, id, /*in_use_too=*/false, /*draft=*/true);
  if (!region.ok()) {
    if ((*mine)()) told(region.status());
    return;
  }
  (*region)->over.store(true);
  (*region)->host->Commit(
      (*region)->object, deadline_ns,
      Tell(*mine, std::move(told), std::make_shared<StoreUse>(StoreUse{*region, nullptr})));
}

void StoreRegions::Abort(const SessionPtr& session, uint64_t id, Told told) {
  const auto mine = Await(*session, told);
  if (!mine.ok()) return told(mine.status());
  const auto region = TakeOut(session->id, id, /*in_use_too=*/true, /*draft=*/true);
  if (!region.ok()) {
    if ((*mine)()) told(region.status());
    return;
  }
  (*region)->over.store(true);
  (*region)->host->Abort(
      (*region)->object,
      Tell(*mine, std::move(told), std::make_shared<StoreUse>(StoreUse{*region, nullptr})));
}

void StoreRegions::Sync(const SessionPtr& session, uint64_t id, int64_t deadline_ns, Told told) {
  auto use = Use(session->id, id, "a sync");
  if (!use.ok()) return told(use.status());
  const std::shared_ptr<StoreRegion> region = use->region;
  if (region->draft || region->is_object) {
    return told(absl::FailedPreconditionError(
        absl::StrCat("region ", id, " (", region->label,
                     ") becomes durable with its commit, expected a file that is written in "
                     "place")));
  }
  const auto mine = Await(*session, told);
  if (!mine.ok()) return told(mine.status());
  region->host->Sync(region->object, deadline_ns,
                     Tell(*mine, std::move(told), std::make_shared<StoreUse>(*std::move(use))));
}

absl::Status StoreRegions::Free(uint64_t session, uint64_t id) {
  return TakeOut(session, id, /*in_use_too=*/false, /*draft=*/false).status();
}

std::vector<std::shared_ptr<StoreRegion>> StoreRegions::List(uint64_t session) const {
  std::vector<std::shared_ptr<StoreRegion>> regions;
  {
    const std::lock_guard lock(mutex_);
    const auto of = sessions_.find(session);
    if (of == sessions_.end()) return regions;
    for (const auto& [id, entry] : of->second.regions) regions.push_back(entry.region);
  }
  std::sort(regions.begin(), regions.end(),
            [](const auto& a, const auto& b) { return a->id < b->id; });
  return regions;
}

void StoreRegions::SessionGone(uint64_t session) {
  OfSession gone;  // closed after the lock
  {
    const std::lock_guard lock(mutex_);
    const auto of = sessions_.find(session);
    if (of == sessions_.end()) return;
    gone = std::move(of->second);
    sessions_.erase(of);
    CountOutLocked(gone.owner, gone.regions.size() + gone.opening);
    // They may talk to their servers for a while, to leave nothing there.
    hosts_.End(gone.owner);
    const auto user = users_.find(gone.owner.tenant);
    if (--user->second.sessions == 0) {
      users_.erase(user);
      hosts_.End({.session = 0, .tenant = gone.owner.tenant});
    }
  }
  for (const auto& [number, told] : gone.waiting) told(Ended());
}

}  // namespace shunt::daemon
