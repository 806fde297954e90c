// What clients can ask for, whichever way the request came: gRPC (grpc_server) and the lease socket
// (lease_server) are carriers of these same handlers. Nothing of a request is believed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client_fd.h"
#include "daemon/communicator_table.h"
#include "daemon/config.h"
#include "daemon/event_loop.h"
#include "daemon/gpu/device_regions.h"
#include "daemon/gpu/workers.h"
#include "daemon/scheduler.h"
#include "daemon/session_table.h"
#include "daemon/transfer/remote_sections.h"
#include "daemon/transfer/store_regions.h"
#include "daemon/transfer/transfer_table.h"
#include "runtime/memory/region_table.h"
#include "runtime/topology/topology.h"
#include "shunt/v1/admin.pb.h"
#include "shunt/v1/collective.pb.h"
#include "shunt/v1/communicator.pb.h"
#include "shunt/v1/memory.pb.h"
#include "shunt/v1/session.pb.h"
#include "shunt/v1/storage.pb.h"
#include "shunt/v1/transfer.pb.h"

namespace shunt::daemon {

// What the handlers work on. The owner (Daemon) keeps all of it alive.
struct ServiceContext {
  const Config* config = nullptr;
  const topology::Topology* topology = nullptr;
  topology::CpuList worker_cpus;
  int worker_threads = 0;
  std::string lease_socket;
  uint64_t incarnation = 0;
  EventLoop* loop = nullptr;
  Scheduler* scheduler = nullptr;
  SessionTable* sessions = nullptr;
  memory::RegionTable* regions = nullptr;
  CommunicatorTable* communicators = nullptr;
  OperationHost* operations = nullptr;
  StoreRegions* stores = nullptr;
  GpuWorkers* gpus = nullptr;
  DeviceRegions* device_regions = nullptr;
  TransferTable* transfers = nullptr;
  RemoteSections* remote_sections = nullptr;
  Probe* probe = nullptr;  // null: nobody counts
};

struct OpenedSession {
  std::shared_ptr<Session> session;
  v1::OpenSessionResponse response;
  UniqueFd ring_fd;  // invalid if no rings were asked for
};

// Thread-safe.
class Services {
 public:
  using SessionPtr = std::shared_ptr<Session>;

  explicit Services(ServiceContext context);

  // session_service.cc
  // `on_lease`: the caller holds the session by its connection; else a pidfd is needed.
  absl::StatusOr<OpenedSession> OpenSession(const Peer& peer, const v1::OpenSessionRequest& request,
                                            bool on_lease);
  absl::StatusOr<SessionPtr> Authenticate(const std::string& token, uint32_t uid) const;
  // Marks it as held by a lease connection, which `on_end` closes.
  absl::StatusOr<SessionPtr> Attach(const Peer& peer, const v1::Attach& request,
                                    std::function<void()> on_end);
  void SetOnEnd(Session& session, std::function<void()> on_end);
  // Its lease connection has closed: ends it, having found out whether its process died.
  void LeaseClosed(const SessionPtr& session);
  // Frees all that it holds; `died`: its process is gone, else it chose to. Idempotent.
  void EndSession(const SessionPtr& session, bool died, std::string_view why);

  // memory_service.cc
  absl::StatusOr<std::shared_ptr<memory::Region>> AllocateRegion(
      const SessionPtr& session, const v1::AllocateRegionRequest& request);
  absl::Status FreeRegion(const SessionPtr& session, const v1::FreeRegionRequest& request);
  // Own, or of a fellow member of a communicator.
  absl::StatusOr<std::shared_ptr<memory::Region>> MapRegion(const SessionPtr& session,
                                                            const v1::MapRegionRequest& request);
  // Answered at once, or on a thread of GpuWorkers.
  using RegisterDeviceReply =
      std::function<void(const absl::StatusOr<v1::RegisterDeviceResponse>&)>;
  void RegisterDevice(const SessionPtr& session, const v1::RegisterDeviceRequest& request,
                      ClientFd descriptor, RegisterDeviceReply reply);
  v1::ListRegionsResponse ListRegions(const SessionPtr& session) const;

  // communicator_service.cc
  using JoinReply = std::function<void(const absl::StatusOr<Joined>&, const v1::JoinResponse&)>;
  // For CommunicatorTable::Withdraw, or 0.
  uint64_t Join(const SessionPtr& session, const v1::JoinRequest& request, bool daemon_posts,
                JoinReply reply);
  void Withdraw(uint64_t join_id) { context_.communicators->Withdraw(join_id); }
  absl::Status Leave(const SessionPtr& session, const v1::LeaveRequest& request);
  absl::Status Abort(const SessionPtr& session, const v1::AbortRequest& request);
  absl::Status Watch(const SessionPtr& session, const v1::WatchOperation& request,
                     ClientFd eventfd);

  // collective_service.cc
  absl::StatusOr<v1::SubmitResponse> Submit(const SessionPtr& session,
                                            const v1::SubmitRequest& request);
  // `done` is called once, unless the returned function is called first and gives true.
  using CancelWait = std::function<bool()>;
  absl::StatusOr<CancelWait> Wait(const SessionPtr& session, const v1::WaitRequest& request,
                                  Operation::Waiter done);
  // Of a rank of a communicator with GPU memory.
  absl::StatusOr<v1::CaptureCallResponse> CaptureCall(const SessionPtr& session,
                                                      const v1::CaptureCallRequest& request);
  // Answered once nobody looks at the call's gates any more.
  void ReleaseCapture(const SessionPtr& session, const v1::ReleaseCaptureRequest& request,
                      std::function<void(const absl::Status&)> reply);
  void OnSubmission(const SessionPtr& session, const ring::Submission& submission);

  // transfer/transfer_service.cc
  absl::StatusOr<v1::RegisterAgentResponse> RegisterAgent(const SessionPtr& session,
                                                          const v1::RegisterAgentRequest& request);
  absl::StatusOr<v1::PublishSectionResponse> PublishSection(
      const SessionPtr& session, const v1::PublishSectionRequest& request);
  absl::Status WithdrawSection(const SessionPtr& session,
                               const v1::WithdrawSectionRequest& request);
  // At once, or on the loop when other nodes have answered.
  using FetchReply = std::function<void(const absl::StatusOr<v1::FetchSectionResponse>&)>;
  void FetchSection(const SessionPtr& session, const v1::FetchSectionRequest& request,
                    FetchReply reply);
  absl::StatusOr<v1::PrepareListResponse> PrepareList(const SessionPtr& session,
                                                      const v1::PrepareListRequest& request);
  absl::Status ReleaseList(const SessionPtr& session, const v1::ReleaseListRequest& request);
  // Answered on a copy thread: looking at a post may take long.
  using PostReply = std::function<void(const absl::StatusOr<v1::PostTransferResponse>&)>;
  void PostTransfer(const SessionPtr& session, const v1::PostTransferRequest& request,
                    PostReply reply);
  using ExplainReply = std::function<void(const absl::StatusOr<v1::ExplainTransferResponse>&)>;
  void ExplainTransfer(const SessionPtr& session, const v1::PostTransferRequest& request,
                       ExplainReply reply);
  // As Wait: `done` is called once, unless the returned function gives true.
  using TransferDone = std::function<void(const absl::Status&, const v1::TransferReport&)>;
  CancelWait WaitTransfer(const SessionPtr& session, const v1::WaitTransferRequest& request,
                          TransferDone done);
  absl::Status CancelTransfer(const SessionPtr& session, const v1::CancelTransferRequest& request);
  absl::Status WatchTransfer(const SessionPtr& session, const v1::WatchTransfer& request,
                             ClientFd eventfd);
  // As FetchSection.
  using NotifyReply = std::function<void(const absl::Status&)>;
  void Notify(const SessionPtr& session, const v1::NotifyRequest& request, NotifyReply reply);
  using TakenReply = std::function<void(const absl::Status&, const v1::TakeNotificationsResponse&)>;
  // `reply` is called once, unless the returned function gives true.
  CancelWait TakeNotifications(const SessionPtr& session,
                               const v1::TakeNotificationsRequest& request, TakenReply reply);
  absl::Status WatchNotifications(const SessionPtr& session, ClientFd eventfd);

  // transfer/storage_service.cc: at once, or on a store's thread.
  using OpenFileReply = std::function<void(const absl::StatusOr<v1::OpenFileResponse>&)>;
  using CreateFileReply = std::function<void(const absl::StatusOr<v1::CreateFileResponse>&)>;
  using StatusReply = std::function<void(const absl::Status&)>;
  // `descriptor`: one that came with the request, or none.
  void OpenFile(const SessionPtr& session, const v1::OpenFileRequest& request, ClientFd descriptor,
                OpenFileReply reply);
  void CreateFile(const SessionPtr& session, const v1::CreateFileRequest& request,
                  CreateFileReply reply);
  void OpenObject(const SessionPtr& session, const v1::OpenObjectRequest& request,
                  OpenFileReply reply);
  void CreateObject(const SessionPtr& session, const v1::CreateObjectRequest& request,
                    CreateFileReply reply);
  void CommitDraft(const SessionPtr& session, const v1::CommitDraftRequest& request,
                   StatusReply reply);
  void AbortDraft(const SessionPtr& session, const v1::AbortDraftRequest& request,
                  StatusReply reply);
  void SyncFile(const SessionPtr& session, const v1::SyncFileRequest& request, StatusReply reply);

  // admin_service.cc: `peer` sees what its user owns; root and the daemon's own user see all.
  v1::GetStatusResponse GetStatus(const Peer& peer) const;
  v1::ListSessionsResponse ListSessions(const Peer& peer) const;
  v1::ListCommunicatorsResponse ListCommunicators(const Peer& peer) const;
  // NOT_FOUND if the peer sees no such communicator; INVALID_ARGUMENT for an unknown operation.
  absl::Status Explain(const Peer& peer, const v1::ExplainRequest& request,
                       v1::ExplainResponse* response) const;
  v1::GetTopologyResponse GetTopology() const;

  // From now on nothing new begins: UNAVAILABLE.
  void BeginStop() { stopping_.store(true); }
  bool stopping() const { return stopping_.load(); }
  const ServiceContext& context() const { return context_; }

 private:
  absl::Status CheckNotStopping() const;

  const ServiceContext context_;
  const int64_t started_ns_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> next_operation_id_ = 1;
};

}  // namespace shunt::daemon
