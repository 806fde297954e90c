// The lists and transfers of all sessions.
//
//   post ──► lists found, access checked    AgentTable
//        ──► selections, plan               runtime/p2p
//        ──► regions held                   RegionTable, StoreRegions, DeviceRegions
//        ──► Transfer                       WorkPool, NodeEngine, StoreMover or DeviceMover
//        ──► report
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/event_loop.h"
#include "daemon/gpu/gpu_engine.h"
#include "daemon/session.h"
#include "daemon/transfer/agent_table.h"
#include "daemon/transfer/post.h"
#include "daemon/transfer/store_regions.h"
#include "daemon/transfer/transfer.h"
#include "runtime/p2p/work_pool.h"
#include "runtime/pull/pull_engine.h"
#include "runtime/ring/layout.h"

namespace shunt::daemon {

class NodeEngine;
struct Probe;

// Thread-safe.
class TransferTable {
 public:
  using SessionPtr = std::shared_ptr<Session>;
  struct Options {
    int threads = 1;
    std::function<void(int index)> on_thread_start = {};
    Probe* probe = nullptr;  // null: nobody counts
  };
  // All outlive it.
  TransferTable(Options options, memory::RegionTable* regions, StoreRegions* stores,
                EventLoop* loop);
  // Transfers in flight are dropped: sessions are gone by then.
  ~TransferTable();

  AgentTable& agents() { return agents_; }
  p2p::WorkPool& pool() { return pool_; }
  // What moves between GPUs and what else there is; before the first request. Both outlive it.
  void UseGpus(GpuEngine* gpus, DeviceRegions* devices) {
    gpus_ = gpus;
    devices_ = devices;
  }
  // What moves payload between nodes; before the first request. It outlives the last one.
  void UseNodes(NodeEngine* engine) { engine_ = engine; }

  // ---- Lists: descriptors with a number, of one session.

  struct OfSets {
    p2p::Section section;
    p2p::Space space = 0;  // or kStoreSpace, kDeviceSpace
  };
  // NOT_FOUND, in words, if a set names a region that is not the session's; INVALID_ARGUMENT if
  // they are of several kinds: host memory, GPU memory, files and objects.
  absl::StatusOr<OfSets> OwnSection(
      uint64_t session, const std::string& name,
      const google::protobuf::RepeatedPtrField<v1::StridedSet>& sets) const;
  // `published`: null for own memory. RESOURCE_EXHAUSTED.
  absl::StatusOr<v1::ListInfo> AddList(const Session& session,
                                       std::shared_ptr<const p2p::PreparedList> list,
                                       std::shared_ptr<const Published> published);
  absl::Status ReleaseList(uint64_t session, uint64_t list);
  // Of a section of one's own: takes the place of the one before.
  absl::StatusOr<v1::ListInfo> SetSectionList(const Session& session,
                                              std::shared_ptr<const p2p::PreparedList> list);
  void DropSectionList(uint64_t session, const std::string& section);

  // ---- Transfers

  // Its number. What can be seen to be wrong from here is found here. May take long.
  absl::StatusOr<uint64_t> Post(const SessionPtr& session, const PostedTransfer& posted);
  // Of the ring: what is wrong is the transfer's outcome. By the poller: long posts are looked at
  // elsewhere.
  void PostFromRing(const SessionPtr& session, const ring::Submission& submission);
  absl::StatusOr<v1::ExplainTransferResponse> Explain(const Session& session,
                                                      const PostedTransfer& posted);

  using Waiter = std::function<void(const absl::StatusOr<TransferReport>&)>;
  // Calls it once: with the report, perhaps at once, which is then forgotten; or with NOT_FOUND.
  // The result takes it back: true if it will not be called.
  std::function<bool()> Wait(uint64_t session, uint64_t transfer, Waiter waiter);
  absl::Status Watch(uint64_t session, uint64_t transfer, UniqueFd event);
  absl::Status Cancel(uint64_t session, uint64_t transfer, const absl::Status& why);

  // Another node's ask: who owns what it names is looked up, and held. remote_transfers.cc. On the
  // engine's driving thread, where `resolved` is called.
  void Resolve(const std::string& node, pull::FlowId flow, const pull::Ask& ask,
               std::vector<std::byte> array, pull::PullEngine::Resolved resolved);

  // Its lists, reports and agent go; what it has in flight, and what others have in flight with it,
  // ends.
  void SessionGone(const Session& session);
  // Nothing is copied or answered any more.
  void Stop() { pool_.Stop(); }
  // Everything in flight ends.
  void CancelAll(const absl::Status& why);
  size_t in_flight() const { return in_flight_.load(); }

 private:
  struct List {
    std::shared_ptr<const p2p::PreparedList> list;
    std::shared_ptr<const Published> published;
  };
  // A post that is being looked at: what is asked of its transfer meanwhile.
  struct Late {
    std::vector<UniqueFd> events;
    std::function<void(const TransferReport&)> waiter;
    absl::Status cancelled;
  };
  struct OfSession {
    std::unordered_map<uint64_t, List> lists;
    std::unordered_map<std::string, uint64_t> section_lists;
    int watches = 0;
    std::unordered_map<uint64_t, std::shared_ptr<Transfer>> transfers;
    std::unordered_map<uint64_t, Late> late;
    std::deque<std::pair<uint64_t, TransferReport>> reports;  // that nobody has asked for yet
    // Of others, that read or write its memory: here, and from other nodes.
    std::unordered_set<std::shared_ptr<Transfer>> counterparts;
    std::unordered_set<pull::FlowId> flows;
  };
  struct Sides {
    std::shared_ptr<const p2p::TransferPlan> plan;
    std::shared_ptr<const Published> published;  // of the remote side; null: own memory
    bool remote() const { return published != nullptr && !published->node.empty(); }
    Route route = Route::kCopy;
  };

  // A list each, of the session's own.
  absl::Status FindLists(const Session& session, const PostedTransfer& posted, List* local,
                         List* remote) const;
  // Until the last reference is gone. RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<void>> ChargeFor(const Session& session, uint64_t bytes,
                                                  std::string_view what) const;
  uint64_t CostOfPost(const Session& session, const PostedTransfer& posted) const;
  absl::StatusOr<Sides> Prepare(const Session& session, const PostedTransfer& posted) const;
  absl::StatusOr<std::shared_ptr<Transfer>> Begin(const SessionPtr& session,
                                                  const PostedTransfer& posted, uint64_t id,
                                                  bool on_ring);
  // With its regions held, its notification reserved and `ended` set.
  absl::StatusOr<std::shared_ptr<Transfer>> MakeLocal(const Sides& sides,
                                                      const PostedTransfer& posted,
                                                      Transfer::Setup setup);
  // remote_transfers.cc
  absl::StatusOr<std::shared_ptr<Transfer>> MakeRemote(const Sides& sides,
                                                       const PostedTransfer& posted,
                                                       Transfer::Setup setup,
                                                       std::function<void()>* start);
  // stored_transfers.cc
  absl::StatusOr<std::shared_ptr<Transfer>> MakeStored(const Sides& sides,
                                                       const PostedTransfer& posted,
                                                       Transfer::Setup setup,
                                                       std::function<void()>* start);
  // device_transfers.cc
  absl::StatusOr<std::shared_ptr<Transfer>> MakeDevice(const Sides& sides,
                                                       const PostedTransfer& posted,
                                                       Transfer::Setup setup,
                                                       std::function<void()>* start);
  absl::Status HoldForGpu(const p2p::Selection& selection, uint64_t session,
                          const std::string& owner, const std::string& words,
                          std::vector<GpuMemory>* memory) const;
  // What MakeStored would say of files and objects; holds nothing.
  absl::Status CheckStores(const Sides& sides, const PostedTransfer& posted,
                           uint64_t session) const;
  absl::Status HoldStores(const p2p::Selection& selection, uint64_t session,
                          const std::string& words, bool write, std::vector<StoreUse>* uses) const;
  static absl::StatusOr<Route> RouteOf(const Published* published, const p2p::TransferPlan& plan,
                                       bool push);
  absl::Status ReserveNotification(const Sides& sides, const PostedTransfer& posted,
                                   Transfer::Setup* setup) const;
  absl::StatusOr<std::shared_ptr<const Published>> FindAsked(const pull::Ask& ask) const;
  absl::StatusOr<pull::PullEngine::Incoming> ResolveNow(const std::string& node, pull::FlowId flow,
                                                        const pull::Ask& ask,
                                                        const std::vector<std::byte>& array);
  // Regions of a selection; errors name them.
  absl::Status Hold(const p2p::Selection& selection, uint64_t session, const std::string& owner,
                    const std::string& words, std::vector<memory::RegionUse>* uses) const;
  void FailOnRing(const SessionPtr& session, uint64_t id, const absl::Status& why);
  void Ended(Transfer& transfer);
  // mutex_ held. Null if nothing of this number is under way.
  std::function<void(const TransferReport&)>* WaiterOf(uint64_t session, uint64_t transfer);
  void AddReport(uint64_t session, uint64_t transfer, TransferReport report);  // mutex_ held
  void Remember(const TransferReport& report);

  memory::RegionTable* const regions_;
  StoreRegions* const stores_;
  NodeEngine* engine_ = nullptr;
  GpuEngine* gpus_ = nullptr;  // null: no GPU is served
  DeviceRegions* devices_ = nullptr;
  EventLoop* const loop_;
  const int threads_;
  Probe* const probe_;
  AgentTable agents_;
  std::atomic<uint64_t> next_list_ = 1;
  std::atomic<uint64_t> next_id_ = uint64_t{1} << 63;  // below: tokens of rings
  std::atomic<size_t> in_flight_ = 0;
  std::atomic<uint64_t> bytes_in_flight_ = 0;
  // Picoseconds a byte, by the route and the logarithm of a transfer's bytes; 0: none yet.
  std::array<std::array<std::atomic<uint64_t>, 65>, kRoutes> pace_ = {};

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, OfSession> sessions_;
  p2p::WorkPool pool_;  // last: its threads end before what they work on
};

}  // namespace shunt::daemon
