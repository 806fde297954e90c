#include "daemon/transfer/store_regions.h"

#include <pthread.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"
#include "runtime/storage/posix/posix_store.h"

namespace shunt::daemon {
namespace {

absl::Status NoRegion(uint64_t id) {
  return absl::NotFoundError(absl::StrCat("region ", id, ": this session has no such region"));
}

absl::Status Stopping() { return absl::UnavailableError("shuntd is stopping and opens nothing"); }

absl::Status Ended() { return absl::CancelledError("the session has ended"); }

std::string FileLabel(const std::string& root, const std::string& path) {
  if (root.empty() && path.empty()) return "file that the client opened";
  return absl::StrCat("file '", Printable(path), "' of root '", Printable(root), "'");
}

}  // namespace

StoreRegion::~StoreRegion() {
  if (object != 0 && !over.load()) host->Close(object);
}

StoreRegions::StoreRegions(Options options, memory::RegionTable* ids)
    : options_(std::move(options)), ids_(ids) {}

absl::Status StoreRegions::Start() {
  if (options_.roots.empty()) return absl::OkStatus();
  return Files().status();
}

absl::StatusOr<std::shared_ptr<storage::StoreHost>> StoreRegions::Files() {
  const std::lock_guard lock(files_mutex_);
  if (files_ != nullptr) return files_;
  {
    const std::lock_guard stopping(mutex_);
    if (stopped_) return Stopping();
  }
  storage::PosixOptions posix;
  posix.roots = options_.roots;
  SHUNT_ASSIGN_OR_RETURN(auto store, storage::PosixStore::Make(std::move(posix)));
  SHUNT_ASSIGN_OR_RETURN(files_, storage::StoreHost::Start(std::move(store), [] {
                           ::pthread_setname_np(::pthread_self(), "shunt-files");
                         }));
  return files_;
}

void StoreRegions::Stop() {
  std::vector<std::shared_ptr<storage::StoreHost>> hosts;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (const auto& [id, of] : sessions_) {
      for (const ObjectHost& host : of.hosts) hosts.push_back(host.host);
    }
    hosts.insert(hosts.end(), leaving_.begin(), leaving_.end());
  }
  {
    const std::lock_guard lock(files_mutex_);
    if (files_ != nullptr) hosts.push_back(files_);
  }
  for (const auto& host : hosts) host->BeginStop();  // all at once
  for (const auto& host : hosts) host->Stop();
}

absl::Status StoreRegions::Reserve(const SessionPtr& session) {
  const std::lock_guard lock(mutex_);
  // SessionGone comes after this is set, and takes the lock.
  if (session->ended.load()) return Ended();
  if (stopped_) return Stopping();
  OfSession& of = sessions_[session->id];
  if (of.regions.size() + of.opening >= options_.session_regions) {
    return absl::ResourceExhaustedError(absl::StrCat("max_regions_per_session: session ",
                                                     session->id, " has ", options_.session_regions,
                                                     " files and objects already"));
  }
  if (total_ >= options_.total_regions) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "all sessions together have ", options_.total_regions,
        " files and objects, an eighth of what the daemon may have open (RLIMIT_NOFILE)"));
  }
  ++of.opening;
  ++total_;
  return absl::OkStatus();
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
    --total_;
    return completion.status;
  }
  of->second.regions.emplace(region->id, Entry{region, std::make_shared<std::string>()});
  return absl::OkStatus();
}

void StoreRegions::Open(const SessionPtr& session, std::shared_ptr<StoreRegion> region,
                        storage::OpenRequest request, Opened opened) {
  if (absl::Status status = Reserve(session); !status.ok()) return opened(status);
  region->owner = session->owner();
  region->writable = request.access == storage::Access::kReadWrite;
  region->host->Open(std::move(request), [this, session, region, opened = std::move(opened)](
                                             const storage::Completion& completion) {
    const absl::Status status = Take(session, region, completion);
    if (!status.ok()) return opened(status);
    opened(region);
  });
}

void StoreRegions::Create(const SessionPtr& session, std::shared_ptr<StoreRegion> region,
                          storage::BeginRequest request, Opened opened) {
  if (absl::Status status = Reserve(session); !status.ok()) return opened(status);
  region->owner = session->owner();
  region->writable = region->draft = true;
  region->bytes = request.bytes;
  region->host->Begin(std::move(request), [this, session, region, opened = std::move(opened)](
                                              const storage::Completion& completion) {
    const absl::Status status = Take(session, region, completion);
    if (!status.ok()) return opened(status);
    opened(region);
  });
}

void StoreRegions::OpenFile(const SessionPtr& session, storage::OpenRequest request,
                            Opened opened) {
  auto host = Files();
  if (!host.ok()) return opened(host.status());
  auto region = std::make_shared<StoreRegion>();
  region->host = *std::move(host);
  region->label = FileLabel(request.container, request.name);
  Open(session, std::move(region), std::move(request), std::move(opened));
}

void StoreRegions::CreateFile(const SessionPtr& session, storage::BeginRequest request,
                              Opened opened) {
  auto host = Files();
  if (!host.ok()) return opened(host.status());
  auto region = std::make_shared<StoreRegion>();
  region->host = *std::move(host);
  region->label = FileLabel(request.container, request.name);
  Create(session, std::move(region), std::move(request), std::move(opened));
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
  --total_;
  return region;
}

void StoreRegions::Commit(uint64_t session, uint64_t id, int64_t deadline_ns, Told told) {
  const auto region = TakeOut(session, id, /*in_use_too=*/false, /*draft=*/true);
  if (!region.ok()) return told(region.status());
  (*region)->over.store(true);
  (*region)->host->Commit((*region)->object, deadline_ns,
                          [told = std::move(told), region = *region](
                              const storage::Completion& completion) { told(completion.status); });
}

void StoreRegions::Abort(uint64_t session, uint64_t id, Told told) {
  const auto region = TakeOut(session, id, /*in_use_too=*/true, /*draft=*/true);
  if (!region.ok()) return told(region.status());
  (*region)->over.store(true);
  (*region)->host->Abort((*region)->object,
                         [told = std::move(told), region = *region](
                             const storage::Completion& completion) { told(completion.status); });
}

void StoreRegions::Sync(uint64_t session, uint64_t id, int64_t deadline_ns, Told told) {
  auto use = Use(session, id, "a sync");
  if (!use.ok()) return told(use.status());
  const StoreRegion& region = *use->region;
  if (region.draft || region.is_object) {
    return told(absl::FailedPreconditionError(
        absl::StrCat("region ", id, " (", region.label,
                     ") becomes durable with its commit, expected a file that is written in "
                     "place")));
  }
  region.host->Sync(region.object, deadline_ns,
                    [told = std::move(told), use = std::make_shared<StoreUse>(*std::move(use))](
                        const storage::Completion& completion) {
                      *use = {};  // its owner may free it as soon as it knows
                      told(completion.status);
                    });
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
  const std::lock_guard lock(mutex_);
  ForgetFinishedLocked();
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return;
  gone = std::move(of->second);
  sessions_.erase(of);
  total_ -= gone.regions.size() + gone.opening;
  for (ObjectHost& host : gone.hosts) {
    // It may talk to its server for a while, to leave nothing there.
    host.host->BeginStop();
    leaving_.push_back(std::move(host.host));
  }
}

void StoreRegions::ForgetFinishedLocked() {
  std::erase_if(leaving_, [](const std::shared_ptr<storage::StoreHost>& host) {
    return host.use_count() == 1 && host->finished();
  });
}

}  // namespace shunt::daemon
