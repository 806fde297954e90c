#include <poll.h>
#include <sys/epoll.h>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "daemon/services.h"
#include "daemon/text.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

// A process that is being killed closes its descriptors a moment before its pidfd says so.
constexpr int64_t kDyingNs = 20'000'000;

bool HasExited(const Peer& peer) {
  if (peer.pidfd == nullptr) return false;
  pollfd p{peer.pidfd->get(), POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

}  // namespace

Services::Services(ServiceContext context)
    : context_(std::move(context)),
      started_ns_(NowNs()),
      drain_(context_.loop, context_.communicators, context_.transfers) {}

absl::Status Services::CheckNotStopping() const {
  if (stopping()) return absl::UnavailableError("shuntd is stopping and begins nothing new");
  if (!drain_.active()) return absl::OkStatus();
  return absl::UnavailableError(
      "shuntd is drained for its node's maintenance and begins nothing new; go to another node, or "
      "wait for `shuntctl drain --undo`");
}

absl::StatusOr<OpenedSession> Services::OpenSession(const Peer& peer,
                                                    const v1::OpenSessionRequest& request,
                                                    bool on_lease) {
  SHUNT_RETURN_IF_ERROR(CheckNotStopping());
  if (request.ring_entries() != 0)
    SHUNT_RETURN_IF_ERROR(ring::CheckEntries(request.ring_entries()));
  if (!on_lease && peer.pidfd == nullptr) {
    return absl::FailedPreconditionError(
        "this kernel does not tell who is at the other end of the gRPC socket: open the session on "
        "the lease "
        "socket");
  }
  if (!on_lease && request.ring_entries() != 0) {
    return absl::InvalidArgumentError(
        "ring_entries: rings need a descriptor, which gRPC cannot carry; open the session on the "
        "lease socket");
  }
  OpenedSession opened;
  SHUNT_ASSIGN_OR_RETURN(opened.session, context_.sessions->Open(peer, request.name()));
  Session& session = *opened.session;
  const auto set_up = [&]() -> absl::Status {
    if (peer.pidfd != nullptr) {
      SHUNT_ASSIGN_OR_RETURN(session.pidfd, Duplicate(peer.pidfd->get()));
    }
    if (request.ring_entries() == 0) return absl::OkStatus();
    const uint64_t bytes = ring::BytesFor(request.ring_entries());
    SHUNT_RETURN_IF_ERROR(context_.regions->Charge(session.owner(), bytes, "ring of a session"));
    session.charged_bytes = bytes;
    SHUNT_ASSIGN_OR_RETURN(opened.ring_fd, MakeSealedMemfd("shunt-ring", bytes));
    SHUNT_ASSIGN_OR_RETURN(session.ring_memory, Mapping::Map(opened.ring_fd.get(), bytes));
    SHUNT_ASSIGN_OR_RETURN(session.doorbell, MakeEventFd());
    ring::Initialize(session.ring_memory.data(), request.ring_entries());
    session.ring = ring::RingServer(session.ring_memory.data(), request.ring_entries());
    return context_.scheduler->Add(opened.session);
  };
  if (absl::Status status = set_up(); !status.ok()) {
    session.ended.store(true);
    context_.sessions->Remove(session);
    if (session.charged_bytes != 0)
      context_.regions->Release(session.owner(), session.charged_bytes);
    return status;
  }
  context_.sessions->Publish(opened.session);
  if (session.pidfd.valid()) {
    std::lock_guard lock(session.mutex);
    const absl::StatusOr<EventLoop::WatchId> watch =
        context_.loop->Watch(session.pidfd.get(), EPOLLIN,
                             [this, weak = std::weak_ptr<Session>(opened.session)](uint32_t) {
                               if (const SessionPtr session = weak.lock())
                                 EndSession(session, /*died=*/true, "its process ended");
                             });
    if (watch.ok()) session.pid_watch = *watch;
  }
  opened.response.set_session_id(session.id);
  opened.response.set_token(session.token.data(), session.token.size());
  opened.response.set_lease_socket(context_.lease_socket);
  opened.response.set_incarnation(context_.incarnation);
  opened.response.set_ring_entries(request.ring_entries());
  opened.response.set_memory_quota_bytes(context_.regions->quotas().session_bytes);
  if (LogEnabled(LogLevel::kInfo)) {
    LogInfo("session opened", {{"session", session.id},
                               {"pid", peer.pid},
                               {"uid", peer.uid},
                               {"name", session.name},
                               {"client", Utf8Prefix(request.client_version(), 32)}});
  }
  return opened;
}

absl::StatusOr<Services::SessionPtr> Services::Authenticate(const std::string& token,
                                                            uint32_t uid) const {
  return context_.sessions->FindByToken(token, uid);
}

absl::StatusOr<Services::SessionPtr> Services::Attach(const Peer& peer, const v1::Attach& request,
                                                      std::function<void()> on_end) {
  SHUNT_ASSIGN_OR_RETURN(SessionPtr session, Authenticate(request.token(), peer.uid));
  if (session->attached.exchange(true)) {
    return absl::AlreadyExistsError(
        absl::StrCat("session ", session->id, " has a lease connection already"));
  }
  SetOnEnd(*session, std::move(on_end));
  return session;
}

void Services::SetOnEnd(Session& session, std::function<void()> on_end) {
  session.attached.store(true);
  std::function<void()> now;
  {
    std::lock_guard lock(session.mutex);
    if (session.ended.load()) {
      now = std::move(on_end);
    } else {
      session.on_end = std::move(on_end);
    }
  }
  if (now) now();
}

void Services::LeaseClosed(const SessionPtr& session) {
  if (session->peer.pidfd == nullptr || HasExited(session->peer)) {
    EndSession(session, /*died=*/true, "its lease connection closed");
    return;
  }
  context_.loop->At(NowNs() + kDyingNs, [this, session] {
    EndSession(session, HasExited(session->peer), "its lease connection closed");
  });
}

void Services::EndSession(const SessionPtr& session, bool died, std::string_view why) {
  if (session->ended.exchange(true)) return;
  context_.sessions->Remove(*session);
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> operations;
  std::function<void()> on_end;
  EventLoop::WatchId pid_watch;
  {
    std::lock_guard lock(session->mutex);
    operations.swap(session->operations);
    on_end = std::move(session->on_end);
    session->on_end = nullptr;
    pid_watch = session->pid_watch;
  }
  // First what others wait for.
  context_.communicators->SessionGone(*session, died);
  context_.transfers->SessionGone(*session);
  context_.stores->SessionGone(session->id);
  context_.device_regions->SessionGone(session->id);
  context_.loop->Unwatch(pid_watch);
  context_.scheduler->Remove(*session);
  for (const auto& [id, operation] : operations) {
    operation->Finish(absl::CancelledError("the session has ended"));
  }
  const std::vector<uint64_t> mapped_by = context_.regions->FreeAll(session->owner());
  if (session->charged_bytes != 0)
    context_.regions->Release(session->owner(), session->charged_bytes);
  for (const uint64_t id : mapped_by) {
    if (const SessionPtr other = context_.sessions->Find(id)) other->RegionFreed();
  }
  if (LogEnabled(LogLevel::kInfo)) {
    LogInfo("session ended", {{"session", session->id},
                              {"pid", session->peer.pid},
                              {"died", died ? 1 : 0},
                              {"why", why}});
  }
  if (on_end) on_end();
}

}  // namespace shunt::daemon
