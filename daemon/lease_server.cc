#include "daemon/lease_server.h"

#include <sys/epoll.h>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "daemon/probe.h"
#include "daemon/text.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

// A section of 1024 sets is as long; so is the reply of a join of 128 ranks.
constexpr size_t kPacketBytesMax = 96 << 10;
// Packets of one connection before the others have their turn.
constexpr int kBatch = 16;
// A connection that opens no session by then is closed.
constexpr int64_t kOpenWithinNs = 10'000'000'000;
// After the process has run out of descriptors.
constexpr int64_t kAcceptPauseNs = 100'000'000;

}  // namespace

// Requests are read and answered on the loop's thread; replies of joins come from any thread.
class LeaseServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(LeaseServer* server, uint64_t id, UniqueFd fd, Peer peer)
      : server_(server), id_(id), fd_(std::move(fd)), peer_(std::move(peer)) {}

  absl::Status Watch() {
    SHUNT_ASSIGN_OR_RETURN(watch_, server_->loop_->Watch(fd_.get(), EPOLLIN, [this](uint32_t) {
      // The server may drop its reference meanwhile.
      const std::shared_ptr<Connection> self = shared_from_this();
      OnReady();
    }));
    return absl::OkStatus();
  }

  // The loop's thread.
  bool has_session() const { return session_ != nullptr; }
  uint32_t uid() const { return peer_.uid; }

  // The loop's thread: no handler runs after this.
  void Detach() {
    server_->loop_->Unwatch(watch_);
    if (session_ != nullptr && !session_->ended.load()) server_->services_->LeaseClosed(session_);
    session_ = nullptr;
    std::lock_guard lock(send_mutex_);
    closed_ = true;
    unsent_.clear();
  }

  // Any thread. A client that does not read gets no further request read until it does.
  void Reply(const v1::LeaseReply& reply, std::span<const int> fds = {}) {
    std::string bytes;
    reply.SerializeToString(&bytes);
    std::lock_guard lock(send_mutex_);
    if (closed_) return;
    if (unsent_.empty()) {
      const absl::Status sent = Send(bytes, fds);
      if (sent.ok()) return;
      if (!absl::IsResourceExhausted(sent)) {
        CloseSoonLocked();
        return;
      }
    }
    Unsent& unsent = unsent_.emplace_back();
    unsent.bytes = std::move(bytes);
    for (const int fd : fds) {
      absl::StatusOr<UniqueFd> copy = Duplicate(fd);
      if (!copy.ok()) {
        CloseSoonLocked();
        return;
      }
      unsent.fds.push_back(*std::move(copy));
    }
    server_->loop_->Change(watch_, EPOLLOUT).IgnoreError();
  }

 private:
  struct Unsent {
    std::string bytes;
    std::vector<UniqueFd> fds;
  };

  absl::Status Send(const std::string& bytes, std::span<const int> fds) {
    return SendWithFds(fd_.get(), std::as_bytes(std::span(bytes)), fds);
  }

  void CloseSoonLocked() {
    closed_ = true;
    CloseSoon();
  }
  void CloseSoon() {
    server_->loop_->Post(
        [server = server_, alive = std::weak_ptr<char>(server_->alive_), id = id_] {
          if (alive.lock() != nullptr) server->Close(id);
        });
  }

  void OnReady() {
    {
      std::lock_guard lock(send_mutex_);
      if (!FlushLocked()) return;
    }
    for (int i = 0; i < kBatch; ++i) {
      std::byte buffer[kPacketBytesMax];
      std::vector<UniqueFd> came;
      absl::StatusOr<Received> received = RecvWithFds(fd_.get(), buffer, kMaxFdsPerMessage, &came);
      if (received.ok()) came = std::move(received->fds);
      std::vector<ClientFd> fds;
      for (UniqueFd& fd : came) fds.emplace_back(std::move(fd), peer_.uid, &server_->closer_);
      if (!received.ok() || received->closed) {
        if (absl::IsInvalidArgument(received.status())) {
          LogWarn(
              "lease connection broken",
              {{"pid", peer_.pid}, {"uid", peer_.uid}, {"error", received.status().ToString()}});
        }
        server_->Close(id_);
        return;
      }
      if (received->would_block) return;
      v1::LeaseRequest request;
      if (!request.ParseFromArray(buffer, static_cast<int>(received->bytes))) {
        Answer(0, absl::InvalidArgumentError("the packet is not a LeaseRequest"));
        LogWarn(
            "lease connection broken",
            {{"pid", peer_.pid}, {"uid", peer_.uid}, {"error", "a packet is not a LeaseRequest"}});
        server_->Close(id_);
        return;
      }
      if (!fds.empty() && server_->closer_.Full(peer_.uid)) {
        LogWarn("a user's descriptors can't be closed: what is behind them does not answer",
                {{"pid", peer_.pid}, {"uid", peer_.uid}});
        server_->Close(id_);
        return;
      }
      if (!Handle(request, std::move(fds))) {
        server_->Close(id_);
        return;
      }
      std::lock_guard lock(send_mutex_);
      if (!unsent_.empty() || closed_) return;
    }
  }

  // False while something is unsent or it is broken.
  bool FlushLocked() {
    if (closed_) return false;
    if (unsent_.empty()) return true;
    while (!unsent_.empty()) {
      std::vector<int> fds;
      for (const UniqueFd& fd : unsent_.front().fds) fds.push_back(fd.get());
      const absl::Status sent = Send(unsent_.front().bytes, fds);
      if (absl::IsResourceExhausted(sent)) return false;
      if (!sent.ok()) {
        CloseSoonLocked();
        return false;
      }
      unsent_.pop_front();
    }
    server_->loop_->Change(watch_, EPOLLIN).IgnoreError();
    return true;
  }

  void Answer(uint64_t id, const absl::Status& status, v1::LeaseReply reply = {},
              std::span<const int> fds = {}) {
    reply.set_id(id);
    reply.set_code(static_cast<int32_t>(status.code()));
    if (!status.ok()) {
      reply.set_message(std::string(status.message()));
      Probe* const probe = server_->services_->context().probe;
      if (probe != nullptr) probe->answers.Answered(status.code());
    }
    Reply(reply, status.ok() ? fds : std::span<const int>{});
  }

  // A response of one of the reply's kinds. True, for Handle.
  template <typename Response>
  bool Give(uint64_t id, absl::StatusOr<Response> response, Response* (v1::LeaseReply::*place)()) {
    v1::LeaseReply reply;
    if (response.ok()) *(reply.*place)() = *std::move(response);
    Answer(id, response.status(), std::move(reply));
    return true;
  }

  // The same for what is answered later, perhaps on another thread.
  template <typename Response>
  std::function<void(const absl::StatusOr<Response>&)> GiveLater(
      uint64_t id, Response* (v1::LeaseReply::*place)()) {
    return [weak = weak_from_this(), id, place](const absl::StatusOr<Response>& response) {
      if (const std::shared_ptr<Connection> self = weak.lock()) self->Give(id, response, place);
    };
  }
  std::function<void(const absl::Status&)> AnswerLater(uint64_t id) {
    return [weak = weak_from_this(), id](const absl::Status& status) {
      if (const std::shared_ptr<Connection> self = weak.lock()) self->Answer(id, status);
    };
  }

  std::function<void()> EndClosure() {
    return [weak = weak_from_this()] {
      if (const std::shared_ptr<Connection> self = weak.lock()) self->CloseSoon();
    };
  }

  // False if the connection is to be closed.
  bool Handle(const v1::LeaseRequest& request, std::vector<ClientFd> fds) {
    Services& services = *server_->services_;
    const uint64_t id = request.id();
    v1::LeaseReply reply;
    using Request = v1::LeaseRequest::RequestCase;
    const Request kind = request.request_case();
    if (kind == Request::kAttach || kind == Request::kOpenSession) {
      if (session_ != nullptr) {
        Answer(id, absl::AlreadyExistsError(
                       absl::StrCat("this connection is session ", session_->id, " already")));
        return true;
      }
      if (kind == Request::kAttach) {
        absl::StatusOr<Services::SessionPtr> session =
            services.Attach(peer_, request.attach(), EndClosure());
        if (session.ok()) session_ = *session;
        Answer(id, session.status());
        return true;
      }
      absl::StatusOr<OpenedSession> opened =
          services.OpenSession(peer_, request.open_session(), /*on_lease=*/true);
      if (!opened.ok()) {
        Answer(id, opened.status());
        return true;
      }
      session_ = opened->session;
      services.SetOnEnd(*session_, EndClosure());
      *reply.mutable_open_session() = opened->response;
      const int out[] = {opened->ring_fd.get(), session_->doorbell.get()};
      Answer(id, absl::OkStatus(), std::move(reply),
             opened->ring_fd.valid() ? std::span<const int>(out) : std::span<const int>{});
      return true;
    }
    if (session_ == nullptr) {
      Answer(id, absl::FailedPreconditionError(
                     "no session yet: the first packet is Attach or OpenSession"));
      return true;
    }
    switch (kind) {
      case Request::kAllocateRegion: {
        const auto region = services.AllocateRegion(session_, request.allocate_region());
        if (!region.ok()) {
          Answer(id, region.status());
          return true;
        }
        reply.mutable_allocate_region()->set_region_id((*region)->id());
        reply.mutable_allocate_region()->set_size_bytes((*region)->bytes());
        const int fd = (*region)->fd();
        Answer(id, absl::OkStatus(), std::move(reply), {&fd, 1});
        return true;
      }
      case Request::kFreeRegion:
        Answer(id, services.FreeRegion(session_, request.free_region()));
        return true;
      case Request::kMapRegion: {
        const auto region = services.MapRegion(session_, request.map_region());
        if (!region.ok()) {
          Answer(id, region.status());
          return true;
        }
        reply.mutable_map_region()->set_size_bytes((*region)->bytes());
        const int fd = (*region)->fd();
        Answer(id, absl::OkStatus(), std::move(reply), {&fd, 1});
        return true;
      }
      case Request::kJoin:
        services.Join(session_, request.join(), /*daemon_posts=*/false,
                      [weak = weak_from_this(), id](const absl::StatusOr<Joined>& joined,
                                                    const v1::JoinResponse& response) {
                        const std::shared_ptr<Connection> self = weak.lock();
                        if (self == nullptr) return;
                        v1::LeaseReply reply;
                        if (!joined.ok()) {
                          self->Answer(id, joined.status());
                          return;
                        }
                        *reply.mutable_join() = response;
                        const int fd = joined->communicator->board_fd();
                        self->Answer(id, absl::OkStatus(), std::move(reply), {&fd, 1});
                      });
        return true;
      case Request::kLeave:
        Answer(id, services.Leave(session_, request.leave()));
        return true;
      case Request::kWatchOperation:
        Answer(id, services.Watch(session_, request.watch_operation(),
                                  fds.empty() ? ClientFd() : std::move(fds.front())));
        return true;
      case Request::kRegisterAgent:
        return Give(id, services.RegisterAgent(session_, request.register_agent()),
                    &v1::LeaseReply::mutable_register_agent);
      case Request::kPublishSection:
        return Give(id, services.PublishSection(session_, request.publish_section()),
                    &v1::LeaseReply::mutable_publish_section);
      case Request::kWithdrawSection:
        Answer(id, services.WithdrawSection(session_, request.withdraw_section()));
        return true;
      case Request::kFetchSection:
        services.FetchSection(
            session_, request.fetch_section(),
            [weak = weak_from_this(), id](const absl::StatusOr<v1::FetchSectionResponse>& fetched) {
              if (const std::shared_ptr<Connection> self = weak.lock())
                self->Give(id, fetched, &v1::LeaseReply::mutable_fetch_section);
            });
        return true;
      case Request::kPrepareList:
        return Give(id, services.PrepareList(session_, request.prepare_list()),
                    &v1::LeaseReply::mutable_prepare_list);
      case Request::kReleaseList:
        Answer(id, services.ReleaseList(session_, request.release_list()));
        return true;
      case Request::kWaitTransfer:
        services.WaitTransfer(session_, request.wait_transfer(),
                              [weak = weak_from_this(), id](const absl::Status& outcome,
                                                            const v1::TransferReport& report) {
                                const std::shared_ptr<Connection> self = weak.lock();
                                if (self == nullptr) return;
                                v1::LeaseReply reply;
                                if (outcome.ok()) *reply.mutable_wait_transfer() = report;
                                self->Answer(id, outcome, std::move(reply));
                              });
        return true;
      case Request::kCancelTransfer:
        Answer(id, services.CancelTransfer(session_, request.cancel_transfer()));
        return true;
      case Request::kWatchTransfer:
        Answer(id, services.WatchTransfer(session_, request.watch_transfer(),
                                          fds.empty() ? ClientFd() : std::move(fds.front())));
        return true;
      case Request::kNotify:
        services.Notify(session_, request.notify(),
                        [weak = weak_from_this(), id](const absl::Status& status) {
                          if (const std::shared_ptr<Connection> self = weak.lock())
                            self->Answer(id, status);
                        });
        return true;
      case Request::kTakeNotifications:
        services.TakeNotifications(
            session_, request.take_notifications(),
            [weak = weak_from_this(), id](const absl::Status& status,
                                          const v1::TakeNotificationsResponse& taken) {
              const std::shared_ptr<Connection> self = weak.lock();
              if (self == nullptr) return;
              v1::LeaseReply reply;
              if (status.ok()) *reply.mutable_take_notifications() = taken;
              self->Answer(id, status, std::move(reply));
            });
        return true;
      case Request::kWatchNotifications:
        Answer(id, services.WatchNotifications(session_,
                                               fds.empty() ? ClientFd() : std::move(fds.front())));
        return true;
      case Request::kExplainTransfer:
        services.ExplainTransfer(session_, request.explain_transfer(),
                                 [weak = weak_from_this(),
                                  id](const absl::StatusOr<v1::ExplainTransferResponse>& response) {
                                   if (const std::shared_ptr<Connection> self = weak.lock()) {
                                     self->Give(id, response,
                                                &v1::LeaseReply::mutable_explain_transfer);
                                   }
                                 });
        return true;
      case Request::kOpenFile:
        services.OpenFile(session_, request.open_file(),
                          fds.empty() ? ClientFd() : std::move(fds.front()),
                          GiveLater(id, &v1::LeaseReply::mutable_open_file));
        return true;
      case Request::kCreateFile:
        services.CreateFile(session_, request.create_file(),
                            GiveLater(id, &v1::LeaseReply::mutable_create_file));
        return true;
      case Request::kOpenObject:
        services.OpenObject(session_, request.open_object(),
                            GiveLater(id, &v1::LeaseReply::mutable_open_file));
        return true;
      case Request::kCreateObject:
        services.CreateObject(session_, request.create_object(),
                              GiveLater(id, &v1::LeaseReply::mutable_create_file));
        return true;
      case Request::kCommitDraft:
        services.CommitDraft(session_, request.commit_draft(), AnswerLater(id));
        return true;
      case Request::kAbortDraft:
        services.AbortDraft(session_, request.abort_draft(), AnswerLater(id));
        return true;
      case Request::kSyncFile:
        services.SyncFile(session_, request.sync_file(), AnswerLater(id));
        return true;
      case Request::kRegisterDevice:
        services.RegisterDevice(session_, request.register_device(),
                                fds.empty() ? ClientFd() : std::move(fds.front()),
                                GiveLater(id, &v1::LeaseReply::mutable_register_device));
        return true;
      case Request::kCaptureCall:
        return Give(id, services.CaptureCall(session_, request.capture_call()),
                    &v1::LeaseReply::mutable_capture_call);
      case Request::kReleaseCapture:
        services.ReleaseCapture(session_, request.release_capture(), AnswerLater(id));
        return true;
      case Request::kCloseSession:
        services.EndSession(session_, /*died=*/false, "it was closed");
        Answer(id, absl::OkStatus());
        return false;
      default:
        Answer(id, absl::UnimplementedError("this daemon does not know the request in the packet"));
        return true;
    }
  }

  LeaseServer* const server_;
  const uint64_t id_;
  const UniqueFd fd_;
  const Peer peer_;
  EventLoop::WatchId watch_ = 0;
  Services::SessionPtr session_;  // the loop's thread only

  std::mutex send_mutex_;
  bool closed_ = false;
  std::deque<Unsent> unsent_;
};

absl::StatusOr<std::unique_ptr<LeaseServer>> LeaseServer::Start(UnixListener listener,
                                                                size_t connections_max,
                                                                size_t connections_max_per_user,
                                                                EventLoop* loop,
                                                                Services* services) {
  std::unique_ptr<LeaseServer> server(new LeaseServer(std::move(listener), connections_max,
                                                      connections_max_per_user, loop, services));
  SHUNT_ASSIGN_OR_RETURN(
      server->watch_,
      loop->Watch(server->listener_.fd(), EPOLLIN, [s = server.get()](uint32_t) { s->Accept(); }));
  return server;
}

LeaseServer::~LeaseServer() {
  loop_->Unwatch(watch_);
  for (const auto& [id, connection] : connections_) connection->Detach();
}

void LeaseServer::Accept() {
  for (int i = 0; i < kBatch; ++i) {
    absl::StatusOr<UniqueFd> fd = listener_.Accept(/*nonblocking=*/true);
    if (!fd.ok()) {
      LogWarn("cannot accept on the lease socket", {{"error", fd.status().ToString()}});
      loop_->Change(watch_, 0).IgnoreError();
      loop_->At(NowNs() + kAcceptPauseNs, [this, alive = std::weak_ptr<char>(alive_)] {
        if (alive.lock() != nullptr) loop_->Change(watch_, EPOLLIN).IgnoreError();
      });
      return;
    }
    if (!fd->valid()) return;
    absl::StatusOr<PeerCredentials> credentials = GetPeerCredentials(fd->get());
    if (!credentials.ok()) continue;               // it has exited already
    if (closer_.Full(credentials->uid)) continue;  // it would bring more of them
    size_t& of_user = connections_of_user_[credentials->uid];
    if (connections_.size() >= connections_max_ || of_user >= connections_max_per_user_) {
      LogWarn("too many lease connections", {{"connections", connections_.size()},
                                             {"uid", credentials->uid},
                                             {"of_this_uid", of_user}});
      continue;
    }
    Peer peer{credentials->pid, credentials->uid, nullptr};
    if (credentials->pidfd.valid()) {
      peer.pidfd = std::make_shared<const UniqueFd>(std::move(credentials->pidfd));
    }
    const uint64_t id = next_connection_++;
    auto connection = std::make_shared<Connection>(this, id, *std::move(fd), std::move(peer));
    if (!connection->Watch().ok()) continue;
    connections_.emplace(id, connection);
    ++of_user;
    loop_->At(NowNs() + kOpenWithinNs, [this, id, alive = std::weak_ptr<char>(alive_)] {
      if (alive.lock() == nullptr) return;
      const auto it = connections_.find(id);
      if (it != connections_.end() && !it->second->has_session()) Close(id);
    });
  }
}

void LeaseServer::Close(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  const std::shared_ptr<Connection> connection = std::move(it->second);
  connections_.erase(it);
  const auto of_user = connections_of_user_.find(connection->uid());
  if (--of_user->second == 0) connections_of_user_.erase(of_user);
  connection->Detach();
}

}  // namespace shunt::daemon
