#include "daemon/gpu/device_regions.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/gpu/worker/listing.h"

namespace shunt::daemon {
namespace {

absl::Status NoRegion(uint64_t id) {
  return absl::NotFoundError(absl::StrCat("region ", id, ": this session has no such region"));
}

absl::Status Ended() { return absl::CancelledError("the session has ended"); }

// Where memory files lie, by the device of one.
absl::StatusOr<std::pair<uint32_t, uint32_t>> MemfdDevice() {
  static const auto* const device = [] {
    auto* const found = new absl::StatusOr<std::pair<uint32_t, uint32_t>>();
    const absl::StatusOr<UniqueFd> fd = MakeSealedMemfd("shunt-probe", 1);
    struct statx info {};
    if (!fd.ok()) {
      *found = fd.status();
    } else if (::statx(fd->get(), "", AT_EMPTY_PATH, STATX_TYPE, &info) != 0) {
      *found = ErrnoStatus(errno, "looking at a memory file");
    } else {
      *found = std::pair(info.stx_dev_major, info.stx_dev_minor);
    }
    return found;
  }();
  return *device;
}

// A driver's: a device, or a file without a place. Others could keep whoever closes one waiting (a
// file system in user space, a lingering socket), and so hold up the worker, everybody's. Looks
// without asking the file's owner.
absl::Status CheckKind(int fd) {
  struct statx info {};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &info) != 0) {
    return ErrnoStatus(errno, "looking at the descriptor");
  }
  const unsigned kind = info.stx_mode & S_IFMT;
  if (kind == S_IFCHR || kind == 0) return absl::OkStatus();
  if (kind == S_IFREG) {
    SHUNT_ASSIGN_OR_RETURN(const auto memory, MemfdDevice());
    if (memory == std::pair(info.stx_dev_major, info.stx_dev_minor)) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "the descriptor is no exported GPU memory, expected what cuMemExportToShareableHandle gave");
}

// What the worker said of memory that it could not open, for whoever registers it.
absl::Status CannotOpen(const DeviceRegion& region, const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return status;
  return {absl::IsResourceExhausted(status) ? status.code() : absl::StatusCode::kFailedPrecondition,
          absl::StrCat(region.bytes, " bytes of GPU memory, by ",
                       region.is_ipc() ? "IPC handle" : "descriptor", ": the worker of ",
                       region.worker->label(), " cannot open them: ", status.message(),
                       region.is_ipc() ? "; allocate with cuMemCreate and an exportable handle "
                                         "(PyTorch: expandable_segments) or shunt_alloc_device to "
                                         "share between containers"
                                       : "")};
}

}  // namespace

DeviceRegion::~DeviceRegion() {
  if (worker != nullptr) worker->Forget(id);
}

absl::Status DeviceRegion::CheckRange(uint64_t offset, uint64_t length) const {
  // Not offset + length, which may overflow.
  if (offset <= bytes && length <= bytes - offset) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("region ", id, ": offset ", offset, " and length ",
                                            length, " do not fit into its ", bytes, " bytes"));
}

DeviceRegions::DeviceRegions(Options options, memory::RegionTable* ids, GpuWorkers* workers)
    : options_(options), ids_(ids), workers_(workers) {}

absl::Status DeviceRegions::Reserve(const Session& session) {
  const std::lock_guard lock(mutex_);
  // SessionGone comes after this is set, and takes the lock.
  if (session.ended.load()) return Ended();
  const auto found = sessions_.find(session.id);
  const uint64_t held =
      found == sessions_.end() ? 0 : found->second.regions.size() + found->second.importing;
  if (held >= options_.session_regions) {
    return absl::ResourceExhaustedError(absl::StrCat("max_regions_per_session: session ",
                                                     session.id, " has ", options_.session_regions,
                                                     " regions of GPU memory already"));
  }
  if (total_ >= options_.total_regions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all sessions together have ", options_.total_regions,
                     " regions of GPU memory, a share of the daemon's open files "
                     "(RLIMIT_NOFILE)"));
  }
  ++total_;
  ++sessions_[session.id].importing;
  return absl::OkStatus();
}

void DeviceRegions::CancelReservation(uint64_t session) {
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return;  // counted out with it
  --total_;
  if (--of->second.importing == 0 && of->second.regions.empty()) sessions_.erase(of);
}

absl::StatusOr<uint64_t> DeviceRegions::Take(const SessionPtr& session,
                                             const std::shared_ptr<DeviceRegion>& region) {
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session->id);
  if (of == sessions_.end()) return Ended();
  --of->second.importing;
  of->second.regions.emplace(region->id, Entry{region, std::make_shared<std::string>()});
  return region->id;
}

void DeviceRegions::Register(const SessionPtr& session, Request request, Registered done) {
  gpu::Uuid uuid;
  if (request.device_uuid.size() != uuid.size()) {
    return done(absl::InvalidArgumentError(
        absl::StrCat("device_uuid has ", request.device_uuid.size(), " bytes, expected 16")));
  }
  std::memcpy(uuid.data(), request.device_uuid.data(), uuid.size());
  if (request.bytes == 0) {
    return done(absl::InvalidArgumentError("GPU memory of 0 bytes, expected an allocation's size"));
  }
  if (request.ipc_handle.empty() != request.descriptor.valid()) {
    return done(absl::InvalidArgumentError(
        request.ipc_handle.empty() ? "neither ipc_handle nor a descriptor came, expected one"
                                   : "both ipc_handle and a descriptor came, expected one"));
  }
  if (!request.ipc_handle.empty() && request.ipc_handle.size() != sizeof(gpu::IpcHandle)) {
    return done(
        absl::InvalidArgumentError(absl::StrCat("ipc_handle has ", request.ipc_handle.size(),
                                                " bytes, expected ", sizeof(gpu::IpcHandle))));
  }
  if (request.descriptor.valid()) {
    if (absl::Status kind = CheckKind(request.descriptor.get()); !kind.ok()) return done(kind);
  }
  if (absl::Status room = Reserve(*session); !room.ok()) return done(room);
  // A std::function must be one that can be copied.
  auto shared = std::make_shared<Request>(std::move(request));
  if (workers_ == nullptr) {
    Import(session, shared, uuid, done);
  } else {
    workers_->WhenListed(
        [this, session, shared, uuid, done] { Import(session, shared, uuid, done); });
  }
}

void DeviceRegions::Import(const SessionPtr& session, const std::shared_ptr<Request>& request,
                           const gpu::Uuid& uuid, const Registered& done) {
  absl::StatusOr<std::shared_ptr<GpuWorker>> worker =
      workers_ != nullptr ? workers_->Find(uuid)
                          : absl::UnimplementedError("this daemon serves no GPU");
  if (!worker.ok()) {
    CancelReservation(session->id);
    return done(worker.status());
  }
  auto region = std::make_shared<DeviceRegion>();
  region->id = ids_->NewId();
  region->owner = session->owner();
  region->bytes = request->bytes;
  region->uuid = uuid;
  // Closing it does not wait: CheckKind.
  if (request->descriptor.valid()) {
    region->descriptor = request->descriptor.Release();
  } else {
    std::memcpy(region->handle.data(), request->ipc_handle.data(), sizeof(region->handle));
  }
  region->worker = *std::move(worker);
  region->worker->Import(region,
                         [this, session, region, done](const absl::StatusOr<uint64_t>& address) {
                           if (!address.ok()) {
                             CancelReservation(session->id);
                             return done(CannotOpen(*region, address.status()));
                           }
                           done(Take(session, region));
                         });
}

absl::StatusOr<std::shared_ptr<DeviceRegion>> DeviceRegions::Find(uint64_t session,
                                                                  uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return NoRegion(id);
  const auto found = of->second.regions.find(id);
  if (found == of->second.regions.end()) return NoRegion(id);
  return found->second.region;
}

absl::StatusOr<DeviceUse> DeviceRegions::Use(uint64_t session, uint64_t id, std::string words) {
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return NoRegion(id);
  const auto found = of->second.regions.find(id);
  if (found == of->second.regions.end()) return NoRegion(id);
  *found->second.use = std::move(words);
  return DeviceUse{found->second.region, found->second.use};
}

absl::Status DeviceRegions::Free(uint64_t session, uint64_t id) {
  std::shared_ptr<DeviceRegion> gone;  // let go of after the lock
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return NoRegion(id);
  const auto found = of->second.regions.find(id);
  if (found == of->second.regions.end()) return NoRegion(id);
  // New uses are made under the lock only, so the count can't rise here.
  if (found->second.use.use_count() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("region ", id, " is in use by ", *found->second.use));
  }
  gone = std::move(found->second.region);
  of->second.regions.erase(found);
  --total_;
  if (of->second.regions.empty() && of->second.importing == 0) sessions_.erase(of);
  return absl::OkStatus();
}

void DeviceRegions::SessionGone(uint64_t session) {
  OfSession gone;
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return;
  gone = std::move(of->second);
  sessions_.erase(of);
  total_ -= gone.regions.size() + gone.importing;
}

std::vector<std::shared_ptr<DeviceRegion>> DeviceRegions::List(uint64_t session) const {
  std::vector<std::shared_ptr<DeviceRegion>> regions;
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

uint64_t DeviceRegions::SessionBytes(uint64_t session) const {
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session);
  uint64_t bytes = 0;
  if (of == sessions_.end()) return bytes;
  for (const auto& [id, entry] : of->second.regions) bytes += entry.region->bytes;
  return bytes;
}

}  // namespace shunt::daemon
