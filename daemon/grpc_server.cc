// The only file of the daemon that sees gRPC.
#include "daemon/grpc_server.h"

#include <fcntl.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <type_traits>
#include <unordered_map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/log.h"
#include "daemon/probe.h"
#include "daemon/text.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"
#include "shunt/v1/admin.grpc.pb.h"
#include "shunt/v1/collective.grpc.pb.h"
#include "shunt/v1/communicator.grpc.pb.h"
#include "shunt/v1/memory.grpc.pb.h"
#include "shunt/v1/session.grpc.pb.h"
#include "shunt/v1/storage.grpc.pb.h"
#include "shunt/v1/transfer.grpc.pb.h"

namespace shunt::daemon {
namespace {

constexpr size_t kConnectionsMax = 2048;
// Another user always finds room.
constexpr size_t kConnectionsPerUserMax = 1024;
constexpr int kMessageBytesMax = 256 << 10;
constexpr int kStreamsMax = 256;  // calls that wait, per connection
constexpr int64_t kAcceptPauseNs = 100'000'000;
// Descriptors given to gRPC are numbered in turn from here, so that a number is not used again
// while a call of an earlier connection with that number may still ask who it came from.
constexpr int kFdBase = 4096;
constexpr int kFdRange = 8192;

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// What the completion queue's tags point to.
struct Tag {
  virtual ~Tag() = default;
  virtual void Run(bool ok) = 0;
};

// One call, from its arrival to its end. Owned by itself: gone when gRPC has said its last word on
// it.
template <typename Service, typename Request, typename Response>
class Call {
 public:
  using Method = void (Service::*)(grpc::ServerContext*, Request*,
                                   grpc::ServerAsyncResponseWriter<Response>*,
                                   grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);
  // Replies now or later, on any thread.
  using Handler = std::function<void(Call*)>;

  static void Expect(Service* service, grpc::ServerCompletionQueue* queue, Method method,
                     Handler handler, Probe* probe) {
    auto* call = new Call(service, queue, method, std::move(handler), probe);
    call->context_.AsyncNotifyWhenDone(&call->done_);
    (service->*method)(&call->context_, &call->request, &call->writer_, queue, queue,
                       &call->arrived_);
  }

  Request request;
  Response response;
  // Called on the queue's thread if the client gives up before the reply. Set in the handler.
  std::function<void()> on_cancel;

  std::string peer() const { return context_.peer(); }

  // The first reply counts. The call may be gone afterwards.
  void Reply(const absl::Status& status) {
    if (replied_.exchange(true)) return;
    if (status.ok()) {
      writer_.Finish(response, grpc::Status::OK, &finished_);
    } else {
      if (probe_ != nullptr) probe_->answers.Answered(status.code());
      writer_.FinishWithError(ToGrpc(status), &finished_);
    }
  }

 private:
  struct Arrived : Tag {
    explicit Arrived(Call* call) : call(call) {}
    void Run(bool ok) override {
      if (!ok) {  // shutting down: it never was a call, and its done tag never comes
        delete call;
        return;
      }
      Expect(call->service_, call->queue_, call->method_, call->handler_, call->probe_);
      call->handler_(call);
    }
    Call* call;
  };
  struct Finished : Tag {
    explicit Finished(Call* call) : call(call) {}
    void Run(bool) override {
      // The queue has seen to it that the reply's writes are visible; a sanitizer, which does not
      // see into the library, learns it here.
      (void)call->replied_.load(std::memory_order_acquire);
      call->Unref();
    }
    Call* call;
  };
  struct Done : Tag {
    explicit Done(Call* call) : call(call) {}
    void Run(bool) override {
      if (call->context_.IsCancelled() && call->on_cancel) call->on_cancel();
      call->Unref();
    }
    Call* call;
  };

  Call(Service* service, grpc::ServerCompletionQueue* queue, Method method, Handler handler,
       Probe* probe)
      : service_(service),
        queue_(queue),
        method_(method),
        handler_(std::move(handler)),
        probe_(probe) {}

  void Unref() {
    if (--references_ == 0) delete this;
  }

  Service* const service_;
  grpc::ServerCompletionQueue* const queue_;
  const Method method_;
  const Handler handler_;
  Probe* const probe_;
  grpc::ServerContext context_;
  grpc::ServerAsyncResponseWriter<Response> writer_{&context_};
  std::atomic<bool> replied_ = false;
  int references_ = 2;  // finished and done; the queue's thread only
  Arrived arrived_{this};
  Finished finished_{this};
  Done done_{this};
};

class Server : public GrpcServer {
 public:
  Server(UnixListener listener, EventLoop* loop, Services* services)
      : listener_(std::move(listener)), loop_(loop), services_(services) {}

  ~Server() override {
    loop_->Unwatch(watch_);
    {
      // An accept may be running on the loop: wait for it.
      std::lock_guard lock(accept_mutex_);
      stopped_ = true;
      listener_.Close();
    }
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
      queue_->Shutdown();
      thread_.join();
    }
    std::lock_guard lock(mutex_);
    for (auto& [fd, connection] : connections_) loop_->Unwatch(connection.watch);
  }

  absl::Status Run() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&sessions_);
    builder.RegisterService(&memory_);
    builder.RegisterService(&communicators_);
    builder.RegisterService(&collectives_);
    builder.RegisterService(&transfers_);
    builder.RegisterService(&storage_);
    builder.RegisterService(&admin_);
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsMax);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC did not start");
    ExpectAll();
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "shunt-grpc");
      void* tag = nullptr;
      bool ok = false;
      while (queue_->Next(&tag, &ok)) static_cast<Tag*>(tag)->Run(ok);
    });
    SHUNT_ASSIGN_OR_RETURN(watch_,
                           loop_->Watch(listener_.fd(), EPOLLIN, [this](uint32_t) { Accept(); }));
    return absl::OkStatus();
  }

  void Post(std::function<void()> f) override {
    auto* posted = new Posted(std::move(f));
    posted->alarm.Set(queue_.get(), std::chrono::system_clock::now(), posted);
  }

 private:
  // The way onto the queue's thread: an alarm that has rung already.
  struct Posted : Tag {
    explicit Posted(std::function<void()> f) : f(std::move(f)) {}
    void Run(bool) override {
      f();
      delete this;
    }
    std::function<void()> f;
    grpc::Alarm alarm;
  };
  struct Connection {
    UniqueFd fd;  // a second descriptor of the same socket, to see it close
    Peer peer;
    EventLoop::WatchId watch = 0;
  };

  void Accept() {
    std::lock_guard accepting(accept_mutex_);
    while (!stopped_) {
      absl::StatusOr<UniqueFd> fd = listener_.Accept(/*nonblocking=*/true);
      if (!fd.ok()) {
        LogWarn("cannot accept on the gRPC socket", {{"error", fd.status().ToString()}});
        Pause();
        return;
      }
      if (!fd->valid()) return;
      absl::StatusOr<PeerCredentials> credentials = GetPeerCredentials(fd->get());
      if (!credentials.ok()) continue;  // it has exited already
      Connection connection;
      connection.peer.pid = credentials->pid;
      connection.peer.uid = credentials->uid;
      if (credentials->pidfd.valid()) {
        connection.peer.pidfd = std::make_shared<const UniqueFd>(std::move(credentials->pidfd));
      }
      int number = ::fcntl(fd->get(), F_DUPFD_CLOEXEC, kFdBase + next_fd_);
      if (number < 0) number = ::fcntl(fd->get(), F_DUPFD_CLOEXEC, 0);  // few descriptors allowed
      if (number < 0) continue;
      next_fd_ = (next_fd_ + 1) % kFdRange;
      {
        std::lock_guard lock(mutex_);
        const auto of_user = static_cast<size_t>(std::count_if(
            connections_.begin(), connections_.end(),
            [&](const auto& entry) { return entry.second.peer.uid == connection.peer.uid; }));
        if (connections_.size() >= kConnectionsMax || of_user >= kConnectionsPerUserMax) {
          ::close(number);
          continue;
        }
        connection.fd = *std::move(fd);
        const absl::StatusOr<EventLoop::WatchId> watch = loop_->Watch(
            connection.fd.get(), EPOLLRDHUP | EPOLLHUP | EPOLLET, [this, number](uint32_t events) {
              if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) Forget(number);
            });
        if (!watch.ok()) {
          ::close(number);
          continue;
        }
        connection.watch = *watch;
        const auto [it, inserted] = connections_.try_emplace(number);
        if (!inserted) loop_->Unwatch(it->second.watch);
        it->second = std::move(connection);
      }
      grpc::AddInsecureChannelFromFd(server_.get(), number);
    }
  }

  void Pause() {
    loop_->Change(watch_, 0).IgnoreError();
    loop_->At(NowNs() + kAcceptPauseNs, [this, alive = std::weak_ptr<char>(alive_)] {
      if (alive.lock() != nullptr) loop_->Change(watch_, EPOLLIN).IgnoreError();
    });
  }

  void Forget(int number) {
    Connection gone;
    std::lock_guard lock(mutex_);
    const auto it = connections_.find(number);
    if (it == connections_.end()) return;
    loop_->Unwatch(it->second.watch);
    gone = std::move(it->second);
    connections_.erase(it);
  }

  // gRPC names a connection that was given to it by descriptor "fd:NUMBER".
  absl::StatusOr<Peer> PeerOf(const std::string& name) {
    absl::string_view text = name;
    int number = -1;
    if (absl::ConsumePrefix(&text, "fd:") && absl::SimpleAtoi(text, &number)) {
      std::lock_guard lock(mutex_);
      const auto it = connections_.find(number);
      if (it != connections_.end()) return it->second.peer;
    }
    return absl::UnauthenticatedError("the connection this call came on is gone");
  }

  // A method that answers at once and needs no session: (peer, request, response) → status.
  // `Service` is the link of the generated AsyncService chain that has the method.
  template <typename Service, typename Request, typename Response, typename F>
  void OnPeer(std::type_identity_t<Service>* service,
              void (Service::*method)(grpc::ServerContext*, Request*,
                                      grpc::ServerAsyncResponseWriter<Response>*,
                                      grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
              F f) {
    Call<Service, Request, Response>::Expect(
        service, queue_.get(), method,
        [this, f](Call<Service, Request, Response>* call) {
          const absl::StatusOr<Peer> peer = PeerOf(call->peer());
          call->Reply(peer.ok() ? f(*peer, call->request, &call->response) : peer.status());
        },
        services_->context().probe);
  }

  // One of a session: (call, session); replies itself if it gives OK, else with what it gives.
  template <typename Service, typename Request, typename Response, typename F>
  void OnSession(std::type_identity_t<Service>* service,
                 void (Service::*method)(grpc::ServerContext*, Request*,
                                         grpc::ServerAsyncResponseWriter<Response>*,
                                         grpc::CompletionQueue*, grpc::ServerCompletionQueue*,
                                         void*),
                 F f) {
    Call<Service, Request, Response>::Expect(
        service, queue_.get(), method,
        [this, f](Call<Service, Request, Response>* call) {
          const absl::StatusOr<Peer> peer = PeerOf(call->peer());
          if (!peer.ok()) return call->Reply(peer.status());
          const absl::StatusOr<Services::SessionPtr> session =
              services_->Authenticate(call->request.token(), peer->uid);
          if (!session.ok()) return call->Reply(session.status());
          f(call, *session);
        },
        services_->context().probe);
  }

  // One of a session that gives its response, or an error, at once.
  template <typename Service, typename Request, typename Response, typename Result>
  void OnRequest(std::type_identity_t<Service>* service,
                 void (Service::*method)(grpc::ServerContext*, Request*,
                                         grpc::ServerAsyncResponseWriter<Response>*,
                                         grpc::CompletionQueue*, grpc::ServerCompletionQueue*,
                                         void*),
                 Result (Services::*handler)(const Services::SessionPtr&, const Request&)) {
    OnSession(service, method,
              [services = services_, handler](auto* call, const Services::SessionPtr& session) {
                auto result = (services->*handler)(session, call->request);
                if constexpr (std::is_same_v<Result, absl::Status>) {
                  call->Reply(result);
                } else {
                  if (result.ok()) call->response = *std::move(result);
                  call->Reply(result.status());
                }
              });
  }

  // To be set to what takes a wait back, for a caller who gives up.
  static std::shared_ptr<Services::CancelWait> CancelOf(auto* call) {
    auto cancel = std::make_shared<Services::CancelWait>();
    call->on_cancel = [call, cancel] {
      if (*cancel && (*cancel)()) call->Reply(absl::CancelledError("the wait was given up"));
    };
    return cancel;
  }

  void ExpectAll();
  void ExpectTransfers();
  void ExpectStorage();

  // One of a session that is answered later, with its response or an error.
  template <typename Service, typename Request, typename Response, typename Reply>
  void OnLater(std::type_identity_t<Service>* service,
               void (Service::*method)(grpc::ServerContext*, Request*,
                                       grpc::ServerAsyncResponseWriter<Response>*,
                                       grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
               void (Services::*handler)(const Services::SessionPtr&, const Request&, Reply)) {
    OnSession(service, method,
              [services = services_, handler](auto* call, const Services::SessionPtr& session) {
                (services->*handler)(session, call->request, [call](const auto& result) {
                  if constexpr (std::is_same_v<std::decay_t<decltype(result)>, absl::Status>) {
                    call->Reply(result);
                  } else {
                    if (result.ok()) call->response = *result;
                    call->Reply(result.status());
                  }
                });
              });
  }

  UnixListener listener_;
  EventLoop* const loop_;
  Services* const services_;
  EventLoop::WatchId watch_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();

  std::mutex accept_mutex_;
  bool stopped_ = false;
  int next_fd_ = 0;

  v1::Sessions::AsyncService sessions_;
  v1::Memory::AsyncService memory_;
  v1::Communicators::AsyncService communicators_;
  v1::Collectives::AsyncService collectives_;
  v1::Transfers::AsyncService transfers_;
  v1::Storage::AsyncService storage_;
  v1::Admin::AsyncService admin_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;

  std::mutex mutex_;
  std::unordered_map<int, Connection> connections_;
};

void Server::ExpectAll() {
  using A = v1::Admin::AsyncService;
  using C = v1::Collectives::AsyncService;
  using J = v1::Communicators::AsyncService;
  using M = v1::Memory::AsyncService;
  using S = v1::Sessions::AsyncService;
  Services* const services = services_;

  OnPeer(&sessions_, &S::RequestOpenSession,
         [services](const Peer& peer, const v1::OpenSessionRequest& request,
                    v1::OpenSessionResponse* response) {
           absl::StatusOr<OpenedSession> opened =
               services->OpenSession(peer, request, /*on_lease=*/false);
           if (opened.ok()) *response = std::move(opened->response);
           return opened.status();
         });
  OnPeer(&sessions_, &S::RequestCloseSession,
         [services](const Peer& peer, const v1::CloseSessionRequest& request,
                    v1::CloseSessionResponse*) {
           const auto session = services->Authenticate(request.token(), peer.uid);
           if (session.ok()) services->EndSession(*session, /*died=*/false, "it was closed");
           return absl::OkStatus();  // also when it had ended before
         });

  OnSession(&memory_, &M::RequestAllocateRegion,
            [services](auto* call, const Services::SessionPtr& session) {
              const auto region = services->AllocateRegion(session, call->request);
              if (region.ok()) {
                call->response.set_region_id((*region)->id());
                call->response.set_size_bytes((*region)->bytes());
              }
              call->Reply(region.status());
            });
  OnSession(&memory_, &M::RequestFreeRegion,
            [services](auto* call, const Services::SessionPtr& session) {
              call->Reply(services->FreeRegion(session, call->request));
            });
  OnSession(&memory_, &M::RequestListRegions,
            [services](auto* call, const Services::SessionPtr& session) {
              call->response = services->ListRegions(session);
              call->Reply(absl::OkStatus());
            });

  OnSession(&communicators_, &J::RequestJoin,
            [services](auto* call, const Services::SessionPtr& session) {
              auto join_id = std::make_shared<uint64_t>(0);
              // Set first: the call may be gone when Join returns.
              call->on_cancel = [services, join_id] { services->Withdraw(*join_id); };
              *join_id = services->Join(
                  session, call->request, /*daemon_posts=*/true,
                  [call](const absl::StatusOr<Joined>& joined, const v1::JoinResponse& response) {
                    if (joined.ok()) call->response = response;
                    call->Reply(joined.status());
                  });
            });
  OnSession(&communicators_, &J::RequestLeave,
            [services](auto* call, const Services::SessionPtr& session) {
              call->Reply(services->Leave(session, call->request));
            });
  OnSession(&communicators_, &J::RequestAbort,
            [services](auto* call, const Services::SessionPtr& session) {
              call->Reply(services->Abort(session, call->request));
            });

  OnSession(&collectives_, &C::RequestSubmit,
            [services](auto* call, const Services::SessionPtr& session) {
              auto submitted = services->Submit(session, call->request);
              if (submitted.ok()) call->response = *submitted;
              call->Reply(submitted.status());
            });
  OnSession(
      &collectives_, &C::RequestWait, [services](auto* call, const Services::SessionPtr& session) {
        const auto cancel = CancelOf(call);
        auto waiting = services->Wait(
            session, call->request, [call](const absl::Status& outcome) { call->Reply(outcome); });
        if (waiting.ok()) {
          *cancel = *std::move(waiting);
        } else {
          call->Reply(waiting.status());
        }
      });

  ExpectTransfers();
  ExpectStorage();

  OnPeer(
      &admin_, &A::RequestGetStatus,
      [services](const Peer& peer, const v1::GetStatusRequest&, v1::GetStatusResponse* response) {
        *response = services->GetStatus(peer);
        return absl::OkStatus();
      });
  OnPeer(&admin_, &A::RequestListSessions,
         [services](const Peer& peer, const v1::ListSessionsRequest&,
                    v1::ListSessionsResponse* response) {
           *response = services->ListSessions(peer);
           return absl::OkStatus();
         });
  OnPeer(&admin_, &A::RequestExplain,
         [services](const Peer& peer, const v1::ExplainRequest& request,
                    v1::ExplainResponse* response) {
           return services->Explain(peer, request, response);
         });
  OnPeer(&admin_, &A::RequestListCommunicators,
         [services](const Peer& peer, const v1::ListCommunicatorsRequest&,
                    v1::ListCommunicatorsResponse* response) {
           *response = services->ListCommunicators(peer);
           return absl::OkStatus();
         });
  OnPeer(&admin_, &A::RequestGetTopology,
         [services](const Peer&, const v1::GetTopologyRequest&, v1::GetTopologyResponse* response) {
           *response = services->GetTopology();
           return absl::OkStatus();
         });
}

void Server::ExpectTransfers() {
  using T = v1::Transfers::AsyncService;
  Services* const services = services_;
  OnRequest(&transfers_, &T::RequestRegisterAgent, &Services::RegisterAgent);
  OnRequest(&transfers_, &T::RequestPublishSection, &Services::PublishSection);
  OnRequest(&transfers_, &T::RequestWithdrawSection, &Services::WithdrawSection);
  OnRequest(&transfers_, &T::RequestPrepareList, &Services::PrepareList);
  OnRequest(&transfers_, &T::RequestReleaseList, &Services::ReleaseList);
  OnRequest(&transfers_, &T::RequestCancelTransfer, &Services::CancelTransfer);
  const auto reply = [](auto* call, const auto& response) {
    if (response.ok()) call->response = *response;
    call->Reply(response.status());
  };
  OnSession(&transfers_, &T::RequestPostTransfer,
            [services, reply](auto* call, const Services::SessionPtr& session) {
              services->PostTransfer(session, call->request,
                                     [call, reply](const auto& r) { reply(call, r); });
            });
  OnSession(&transfers_, &T::RequestExplainTransfer,
            [services, reply](auto* call, const Services::SessionPtr& session) {
              services->ExplainTransfer(session, call->request,
                                        [call, reply](const auto& r) { reply(call, r); });
            });
  OnSession(&transfers_, &T::RequestFetchSection,
            [services](auto* call, const Services::SessionPtr& session) {
              services->FetchSection(
                  session, call->request,
                  [call](const absl::StatusOr<v1::FetchSectionResponse>& fetched) {
                    if (fetched.ok()) call->response = *fetched;
                    call->Reply(fetched.status());
                  });
            });
  OnSession(&transfers_, &T::RequestNotify,
            [services](auto* call, const Services::SessionPtr& session) {
              services->Notify(session, call->request,
                               [call](const absl::Status& status) { call->Reply(status); });
            });
  OnSession(&transfers_, &T::RequestWaitTransfer,
            [services](auto* call, const Services::SessionPtr& session) {
              const auto cancel = CancelOf(call);
              *cancel = services->WaitTransfer(
                  session, call->request,
                  [call](const absl::Status& outcome, const v1::TransferReport& report) {
                    call->response = report;
                    call->Reply(outcome);
                  });
            });
  OnSession(&transfers_, &T::RequestTakeNotifications,
            [services](auto* call, const Services::SessionPtr& session) {
              const auto cancel = CancelOf(call);
              *cancel = services->TakeNotifications(
                  session, call->request,
                  [call](const absl::Status& status, const v1::TakeNotificationsResponse& taken) {
                    call->response = taken;
                    call->Reply(status);
                  });
            });
}

void Server::ExpectStorage() {
  using T = v1::Storage::AsyncService;
  OnSession(&storage_, &T::RequestOpenFile,
            [services = services_](auto* call, const Services::SessionPtr& session) {
              services->OpenFile(session, call->request, ClientFd(),
                                 [call](const absl::StatusOr<v1::OpenFileResponse>& opened) {
                                   if (opened.ok()) call->response = *opened;
                                   call->Reply(opened.status());
                                 });
            });
  OnLater(&storage_, &T::RequestCreateFile, &Services::CreateFile);
  OnLater(&storage_, &T::RequestOpenObject, &Services::OpenObject);
  OnLater(&storage_, &T::RequestCreateObject, &Services::CreateObject);
  OnLater(&storage_, &T::RequestCommitDraft, &Services::CommitDraft);
  OnLater(&storage_, &T::RequestAbortDraft, &Services::AbortDraft);
  OnLater(&storage_, &T::RequestSyncFile, &Services::SyncFile);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(UnixListener listener,
                                                              EventLoop* loop, Services* services) {
  auto server = std::make_unique<Server>(std::move(listener), loop, services);
  SHUNT_RETURN_IF_ERROR(server->Run());
  return server;
}

}  // namespace shunt::daemon
