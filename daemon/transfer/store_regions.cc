#include "daemon/transfer/store_regions.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

// Calls of one session that wait for stores.
constexpr size_t kWaitingMax = 1024;

absl::Status NoRegion(uint64_t id) {
  return absl::NotFoundError(absl::StrCat("region ", id, ": this session has no such region"));
}

absl::Status Stopping() { return absl::UnavailableError("shuntd is stopping and opens nothing"); }

absl::Status Ended() { return absl::CancelledError("the session has ended"); }

}  // namespace

StoreRegion::~StoreRegion() {
  if (object != 0 && !over.load()) host->Close(object);
}

StoreRegions::StoreRegions(Options options, memory::RegionTable* ids)
    : options_(std::move(options)),
      ids_(ids),
      hosts_(options_.hosts, options_.at, options_.tallies) {}

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

void StoreRegions::CountOutLocked(memory::Owner owner, uint64_t regions) {
  total_ -= regions;
  users_[owner.tenant].regions -= regions;
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
