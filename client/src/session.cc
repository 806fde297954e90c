#include "client/src/session.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/communicator.h"
#include "client/src/cuda/device_memory.h"
#include "client/src/cuda/watcher.h"
#include "client/src/notifications.h"
#include "client/src/transfers.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"
#include "runtime/core/utf8.h"

namespace shunt::client {
namespace {

// What may be in flight: 80 bytes each of shared memory, of which only used pages exist.
constexpr uint32_t kRingEntries = 1024;
constexpr std::string_view kLeaseSuffix = ".lease";
constexpr std::chrono::seconds kCloseWait(2);

// Makes the pages of a fresh region resident from here, so that this process' cgroup pays for them.
absl::Status Populate(const Mapping& mapping) {
  ::madvise(mapping.data(), mapping.size(), MADV_HUGEPAGE);
  if (::madvise(mapping.data(), mapping.size(), MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  if (errno != EINVAL) return ErrnoStatus(errno, "make a region's pages resident");
  // Before Linux 5.14.
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < mapping.size(); at += page) {
    const_cast<volatile std::byte&>(mapping.data()[at]) = std::byte{0};
  }
  return absl::OkStatus();
}

absl::StatusOr<Mapping> MapResident(int fd, uint64_t bytes) {
  SHUNT_RETURN_IF_ERROR(CheckSealedMemfd(fd, bytes));
  SHUNT_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd, bytes));
  SHUNT_RETURN_IF_ERROR(Populate(mapping));
  return mapping;
}

// The failure to connect, in terms of the socket that the user named, and what to do.
absl::Status NoDaemon(const std::string& socket, const absl::Status& why) {
  if (absl::IsPermissionDenied(why)) {
    return absl::PermissionDeniedError(
        absl::StrCat("this user may not connect to shuntd at ", socket, " (", why.message(),
                     "): run as one who may write to its socket files, or widen shuntd's "
                     "socket_mode"));
  }
  if (!absl::IsUnavailable(why)) return why;
  return absl::UnavailableError(absl::StrCat(
      "no shuntd answers at ", socket, " (", why.message(), "): start it with \"shuntd --socket ",
      socket, "\", or name the socket of a running one in $SHUNT_SOCKET or in the call"));
}

}  // namespace

int64_t RequestDeadlineNs() { return DeadlineAfterNs(std::chrono::seconds(60)); }

Session::Session(std::unique_ptr<LeaseConnection> lease)
    : pid_(::getpid()),
      lease_(std::move(lease)),
      notifications_(std::make_unique<Notifications>(lease_.get())),
      transfers_(std::make_unique<Transfers>(this)),
      ring_(std::make_unique<SubmissionRing>(
          lease_.get(), [this](const ring::Completion& c) { transfers_->Ended(c); })),
      device_memory_(std::make_unique<cuda::DeviceMemory>(this)) {}

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const Options& options) {
  const std::string path =
      absl::StrCat(options.socket, absl::string_view(kLeaseSuffix.data(), kLeaseSuffix.size()));
  if (absl::Status fits = CheckUnixPath(path); !fits.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket '", options.socket, "': it has ", options.socket.size(), " bytes, at most ",
        kMaxUnixPathBytes - kLeaseSuffix.size(), " fit (and none at all is no path)"));
  }
  std::shared_ptr<Session> session;
  {
    // No fork between the connection and the entry in the list of what a child closes.
    ForkGuard guard;
    auto lease = LeaseConnection::Connect(path);
    if (!lease.ok()) return NoDaemon(options.socket, lease.status());
    session.reset(new Session(*std::move(lease)));
    guard.Add(session.get());
  }
  SHUNT_RETURN_IF_ERROR(session->Start(options));
  return session;
}

absl::Status Session::Start(const Options& options) {
  SHUNT_ASSIGN_OR_RETURN(
      LeaseConnection::Reply reply,
      lease_->Call(OpenSession{Printable(options.name), SHUNT_VERSION, kRingEntries},
                   RequestDeadlineNs()));
  const auto* opened = std::get_if<SessionOpened>(&reply.message.response);
  if (opened == nullptr || reply.fds.size() != 2) {
    return absl::InternalError("shuntd's reply to OpenSession has no session or no rings");
  }
  id_ = opened->session_id;
  SHUNT_RETURN_IF_ERROR(
      ring_->Attach(reply.fds[0].get(), std::move(reply.fds[1]), opened->ring_entries));
  regions_freed_seen_ = ring_->regions_freed();
  return absl::OkStatus();
}

Session::~Session() {
  // In a forked child nothing here is its own: the destructors only let go of memory.
  if (!InForkedChild()) {
    Close();
    return;
  }
  // Its thread is not here, and pinned memory is the parent's.
  new (std::nothrow) std::shared_ptr<cuda::Watcher>(std::move(watcher_));
}

void Session::Close() {
  if (closed_.exchange(true)) return;
  std::shared_ptr<cuda::Watcher> watcher;
  {
    std::lock_guard lock(watcher_mutex_);
    watcher.swap(watcher_);
  }
  if (watcher != nullptr) watcher->BeginStop();
  // Asked for and answered, so that what it held is free on return. If not, the daemon finds out.
  if (id_ != 0) (void)lease_->Call(CloseSession{}, DeadlineAfterNs(kCloseWait));
  ForkGuard().Remove(this);
  lease_->Shutdown();
  if (watcher != nullptr) watcher->Stop();
  // They keep the session.
  transfers_->ForgetAll();
}

absl::Status Session::CheckProcess() const {
  if (!InForkedChild()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("session ", id_, " belongs to process ", pid_,
                                                    ": process ", ::getpid(),
                                                    ", forked from it, must open its own"));
}

void Session::OnForkChild() {
  lease_->CloseInChild();
  ring_->CloseInChild();
}

// ---- Memory

absl::StatusOr<RegionTable::OwnRegion> Session::MakeRegion(size_t bytes) {
  SHUNT_ASSIGN_OR_RETURN(LeaseConnection::Reply reply,
                         lease_->Call(AllocateRegion{bytes}, RequestDeadlineNs()));
  const auto* made = std::get_if<RegionAllocated>(&reply.message.response);
  if (made == nullptr || reply.fds.size() != 1 || made->size_bytes < bytes) {
    return absl::InternalError("shuntd's reply to AllocateRegion has no region");
  }
  absl::StatusOr<Mapping> mapping = MapResident(reply.fds[0].get(), made->size_bytes);
  if (!mapping.ok()) {
    (void)lease_->Call(FreeRegion{made->region_id}, RequestDeadlineNs());
    return mapping.status();
  }
  return RegionTable::OwnRegion{made->region_id, *std::move(mapping)};
}

absl::StatusOr<void*> Session::Allocate(size_t bytes) {
  SHUNT_ASSIGN_OR_RETURN(RegionTable::OwnRegion region, MakeRegion(bytes));
  void* const data = region.mapping.data();
  regions_.AddOwn(std::move(region));
  return data;
}

absl::Status Session::CheckUnused(uint64_t region_id) {
  std::string what;
  {
    std::lock_guard lock(communicators_mutex_);
    for (Communicator* c : communicators_) {
      c->SettleStreams();
      if (c->member().Uses(region_id, &what)) {
        return absl::FailedPreconditionError(
            absl::StrCat("region ", region_id, " is in use by ", what));
      }
    }
  }
  if (transfers_->Uses(region_id, &what)) {
    return absl::FailedPreconditionError(
        absl::StrCat("region ", region_id, " is in use by ", what));
  }
  return absl::OkStatus();
}

absl::Status Session::Free(const void* data) {
  const uint64_t id = regions_.OwnId(data);
  if (id == 0) return absl::NotFoundError("no region begins at this pointer");
  SHUNT_RETURN_IF_ERROR(CheckUnused(id));
  // Out of the table first: an operation that starts now must not find it.
  std::optional<RegionTable::OwnRegion> region = regions_.RemoveOwn(data);
  if (!region) return absl::NotFoundError("the region is being freed by another thread");
  auto reply = lease_->Call(FreeRegion{id}, RequestDeadlineNs());
  if (!reply.ok() && !absl::IsUnavailable(reply.status())) {
    regions_.AddOwn(*std::move(region));
    return reply.status();
  }
  return absl::OkStatus();
}

RegionTable::Memory Session::PeerRegion(uint64_t region_id) {
  if (RegionTable::Memory memory = regions_.Peer(region_id); memory.data != nullptr) return memory;
  auto reply = lease_->Call(MapRegion{region_id}, RequestDeadlineNs());
  if (!reply.ok() || reply->fds.size() != 1) return {};
  const auto* mapped = std::get_if<RegionMapped>(&reply->message.response);
  if (mapped == nullptr || !CheckSealedMemfd(reply->fds[0].get(), mapped->size_bytes).ok())
    return {};
  auto mapping = Mapping::Map(reply->fds[0].get(), mapped->size_bytes);
  if (!mapping.ok()) return {};
  // The owner has touched the pages: this only fills the page tables, huge pages at a stroke.
  ::madvise(mapping->data(), mapping->size(), MADV_HUGEPAGE);
  ::madvise(mapping->data(), mapping->size(), MADV_POPULATE_READ);
  ::madvise(mapping->data(), mapping->size(), MADV_DONTFORK);
  return regions_.AddPeer(region_id, *std::move(mapping));
}

void Session::DropStaleRegions() {
  const uint32_t freed = ring_->regions_freed();
  std::lock_guard lock(communicators_mutex_);
  const bool dropped = regions_.DropPeers([this] {
    uint32_t active = 0;
    for (const Communicator* c : communicators_) active += c->active();
    return active <= 1;
  });
  if (dropped) regions_freed_seen_.store(freed, std::memory_order_relaxed);
}

// ---- For communicators

absl::StatusOr<std::shared_ptr<cuda::Watcher>> Session::StreamWatcher(gpu::Driver* driver) {
  std::lock_guard lock(watcher_mutex_);
  if (closed_) return absl::FailedPreconditionError("the session is closed");
  if (watcher_ == nullptr) {
    auto gates =
        std::make_shared<cuda::Gates>(driver, [this](size_t bytes) { return MakeRegion(bytes); });
    SHUNT_ASSIGN_OR_RETURN(watcher_, cuda::Watcher::Start(lease_.get(), std::move(gates)));
  }
  return watcher_;
}

void Session::Add(Communicator* communicator) {
  std::lock_guard lock(communicators_mutex_);
  communicators_.push_back(communicator);
}

void Session::Remove(Communicator* communicator) {
  std::lock_guard lock(communicators_mutex_);
  std::erase(communicators_, communicator);
}

}  // namespace shunt::client
