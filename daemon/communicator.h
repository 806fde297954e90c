// One epoch of a communicator: its board, its members, and the operations on it that the daemon
// sees through. It lives until its last member has gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/cluster/cluster.h"
#include "daemon/event_loop.h"
#include "daemon/gpu/captures.h"
#include "daemon/gpu/gpu_engine.h"
#include "daemon/node_engine.h"
#include "daemon/session.h"
#include "runtime/board/server.h"
#include "runtime/board/tally.h"
#include "runtime/core/clock.h"
#include "runtime/core/counters.h"
#include "runtime/core/fd.h"
#include "runtime/memory/region_table.h"

namespace shunt::daemon {

class NamedMemory;
class Scheduler;
struct Probe;

// Names a communicator: two tenants, or two jobs of one, never meet.
struct CommunicatorKey {
  uint32_t uid = 0;
  std::string job;
  std::string name;
  bool operator==(const CommunicatorKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const CommunicatorKey& key) {
    return H::combine(std::move(h), key.uid, key.job, key.name);
  }
};

struct Member {
  uint64_t session_id = 0;
  int32_t pid = 0;
  std::string name;   // the session's
  bool gone = false;  // left or dead
  bool daemon_posts = false;
};

// Everything that served operations share. Outlives all communicators.
struct OperationHost {
  memory::RegionTable* regions = nullptr;
  Scheduler* scheduler = nullptr;
  EventLoop* loop = nullptr;
  // Null without a cluster. Set once, before the first join.
  cluster::Cluster* cluster = nullptr;
  NodeEngine* engine = nullptr;
  GpuEngine* gpus = nullptr;         // null: this daemon serves no GPU
  std::string node;                  // this one's name in the cluster
  bool aggregator = false;           // it has no ranks, and adds for other nodes
  std::atomic<uint64_t> served = 0;  // operations, for status
  std::atomic<uint64_t> failed = 0;
  Probe* probe = nullptr;  // null: nobody counts
};

// Thread-safe.
class Communicator : public std::enable_shared_from_this<Communicator>,
                     private board::RegionResolver {
 public:
  // What a board counts for in its members' quotas, each: a member writes a line here and a slot
  // there; the rest of the object is a hole, and its pages belong to whoever touches them.
  static constexpr uint64_t kChargedBytes = 64 << 10;

  // Makes the board: sealed, sparse, mapped, its header written. Members come later.
  // `numbers`: of this node's ranks, ascending; as many as `world` if all are here, as they are if
  // `device`: its operations are the GPU engine's.
  static absl::StatusOr<std::shared_ptr<Communicator>> Make(CommunicatorKey key, uint64_t id,
                                                            uint64_t epoch, int world,
                                                            std::vector<int32_t> numbers,
                                                            bool device, OperationHost* host);
  // Before it is shared with anybody: its part in the exchange with the other nodes. `engine`
  // outlives it.
  void Span(NodeEngine* engine, NodeEngine::Span span);
  ~Communicator() override;

  const CommunicatorKey& key() const { return key_; }
  uint64_t id() const { return id_; }
  uint64_t epoch() const { return epoch_; }
  int world() const { return world_; }
  int board_fd() const { return board_fd_.get(); }

  // Ranks of this node: below, a rank is the board's, not the number in the communicator.
  const std::vector<int32_t>& numbers() const { return numbers_; }
  bool spans_nodes() const { return board_.shape().spans_nodes(); }
  bool device() const { return board_.shape().device; }
  uint64_t wire_id() const { return wire_id_; }
  NodeEngine* engine() const { return engine_; }
  // Before it is shared with anybody: this node's ranks, in order.
  void SetMembers(std::vector<Member> members);
  std::vector<Member> members() const;
  // True if a session with this id is a member and not gone.
  bool HasMember(uint64_t session_id) const;
  bool AllGone() const;
  // OK, or why the communicator takes no more work.
  absl::Status FailureStatus() const { return server_.FailureStatus(); }
  std::string LastCall(int rank) const { return server_.LastCall(rank); }

  // The rank has left, or its process has died: all operations that need it end. True if it was
  // there.
  bool MemberGone(int rank, bool died);
  void Abort(int rank, std::string_view reason);
  // The daemon goes away: everything ends with UNAVAILABLE.
  void FailForStop(std::string_view reason);

  // See an operation through for `rank`, whose own post is on the board or about to be. Completed
  // on the session's ring.
  void Serve(int rank, std::shared_ptr<Session> session, const ring::Submission& submission);
  // News of an operation on the channel; of all of them, if the communicator has failed.
  // `deadline_ns`: of the call that came last, where the daemon moves it.
  void Kick(uint32_t channel, uint64_t seq, int64_t deadline_ns);
  // What this node's ranks called last.
  std::vector<cluster::RankCall> RankCalls() const;
  // Signals `eventfd` (CheckEventFd passed) when (channel, seq) has ended for `rank`; at once if
  // the daemon knows of no such operation.
  absl::Status Watch(int rank, std::shared_ptr<Session> session, uint32_t channel, uint64_t seq,
                     UniqueFd eventfd);
  // Posts a call for `rank`. Nothing was posted if it fails. `operation` is finished with the
  // outcome.
  absl::Status PostFor(int rank, const board::Call& call, board::RegionRef in, board::RegionRef out,
                       int64_t deadline_ns, std::shared_ptr<Operation> operation);

  // A call that a graph of `rank` has captured, where it has GPU memory. Buffers are given where
  // the call has them. INVALID_ARGUMENT, in words, for places outside the session's regions.
  struct CapturedCall {
    uint64_t sequence = 0;
    CollectiveSpec spec{};  // valid
    board::RegionRef in, out, gate;
    Scalar scalar{};
  };
  absl::Status Capture(int rank, const std::shared_ptr<Session>& session, const CapturedCall& call);
  void ReleaseCapture(int rank, uint64_t sequence, Captures::Answer answer);

  // True if `rank` takes part in the channel.
  bool TakesPart(int rank, uint32_t channel) const;

  // A worker's: does what can be done on the channel.
  void RunChannel(uint32_t channel);
  // A hint for the scheduler, from what a member wrote: does the next operation move much?
  bool LooksLong(uint32_t channel);

  // What its ranks have called here; only grows. Who comes late; and how long operations with
  // other nodes have taken here, all in all.
  board::Totals Totals() const;
  std::optional<board::Lateness> Lateness() const { return board::LatenessOf(board_, NowNs()); }
  int64_t exchanging_ns() const { return static_cast<int64_t>(exchanging_ns_.value()); }

  // Operations that the daemon is seeing through.
  size_t pending() const;
  // A guess from the board: some rank waits for an operation. For the grace period only.
  bool LooksBusy() const;

 private:
  struct Asker {
    int rank = -1;
    int64_t deadline_ns = kNeverNs;
    std::shared_ptr<Session> session;  // ring
    uint64_t ring_token = 0;
    std::shared_ptr<Operation> operation;  // gRPC
    UniqueFd eventfd;                      // watch
    std::shared_ptr<void> watcher;         // counts it for its session
    // Where its stream meets the operation; null: no stream.
    std::shared_ptr<memory::Region> gate;
    uint64_t gate_offset = 0;
    uint32_t gate_generation = 0;
  };
  struct Served {
    absl::InlinedVector<Asker, 2> askers;
    int64_t began_ns = 0;
  };
  struct ChannelQueue {
    std::map<uint64_t, Served> pending;  // by sequence
    bool scheduled = false;              // waits for a worker, or has one
    bool again = false;                  // news came while a worker was at it
  };

  Communicator(CommunicatorKey key, uint64_t id, uint64_t epoch, int world,
               std::vector<int32_t> numbers, bool device, OperationHost* host, UniqueFd board_fd,
               Mapping mapping);
  // Begins what this node's ranks have all called, on a communicator that spans nodes.
  void RunRemote(uint32_t channel);
  void Exchanged(uint32_t channel, uint64_t seq, const absl::Status& outcome);
  // Another node's ranks, or the way to them, have failed.
  void Fail(const NodeFailure& failure);
  // The deadline of an exchange has passed: asks the other nodes which of their ranks have not
  // called.
  void AskWhoIsMissing(uint32_t channel, uint64_t seq);
  void FailAbsent(uint32_t channel, uint64_t seq, const std::string& missing);

  // communicator_device.cc: operations on GPU memory.
  // How operations of a channel that are under way at once are kept in order.
  enum class Order : uint8_t { kCalls, kStreams, kMixed };
  struct Flight {
    GpuEngine::Ticket ticket;
    std::shared_ptr<GpuEngine::Call> call;
    Order order = Order::kCalls;
    bool cancelled = false;
  };
  struct DeviceChannel {
    uint64_t next = 1;                      // the sequence that the engine gets next
    std::shared_ptr<GpuEngine::Call> call;  // of that sequence, if all ranks have called
    bool later = false;                     // the engine will say when to try again
    std::map<uint64_t, Flight> flights;     // by sequence
    std::map<uint64_t, int64_t> deadlines;
  };
  void MakeCaptures();
  absl::Status FillPiece(uint64_t session, const board::RegionRef& ref, uint64_t bytes,
                         uint64_t alignment, const char* what, Captures::Piece* piece) const;
  void RunDevice(uint32_t channel);
  bool BeginNextLocked(uint32_t channel, const ChannelQueue& queue,
                       std::unique_lock<std::mutex>& lock);
  std::shared_ptr<GpuEngine::Call> GatherDeviceLocked(uint32_t channel, uint64_t seq,
                                                      const ChannelQueue& queue);
  bool FillRanksLocked(uint32_t channel, uint64_t seq, const ChannelQueue& queue,
                       const board::Gathered& gathered, const NamedMemory& named,
                       GpuEngine::Call* call);
  absl::Status FillTables(uint64_t seq, const board::Gathered& gathered,
                          GpuEngine::Call* call) const;
  static Order OrderOf(const GpuEngine::Call& call);
  static bool InTurn(const DeviceChannel& state, Order order);
  void EndDeviceLocked(uint32_t channel, ChannelQueue& queue, std::unique_lock<std::mutex>& lock);
  void Moved(uint32_t channel, uint64_t seq, const absl::Status& outcome);
  void ScheduleDeviceLocked();
  void KickDeviceLocked(uint32_t channel, uint64_t seq, int64_t deadline_ns);
  bool ExpireDevice(uint32_t channel, uint64_t seq);
  absl::Status TakeGate(int rank, const ring::Submission& submission, Asker* asker);
  static void ReleaseGate(const Asker& asker);
  bool AnswerLateLocked(uint32_t channel, uint64_t seq, Asker& asker);
  std::string DeviceWords(uint32_t channel, uint64_t seq, OpKind kind) const;
  std::byte* ResolveDevice(int rank, uint64_t region, uint64_t offset, uint64_t bytes);

  std::byte* Resolve(int rank, uint64_t region, uint64_t offset, uint64_t bytes) override;
  void AddLocked(uint32_t channel, uint64_t seq, Asker asker);
  void ScheduleLocked(uint32_t channel, ChannelQueue& queue);
  void ScheduleAllLocked();
  // Logs that the communicator has failed and tells the other nodes, once.
  void NoticeFailureLocked();
  void WatchDeadlineLocked(int64_t deadline_ns);
  void ExpireDue();
  static void Answer(Asker& asker, const absl::Status& outcome);
  void Tell(uint32_t channel, uint64_t seq, const Served& served,
            const absl::Status& outcome) const;
  // After the lock is gone: `served` has ended.
  void Complete(uint32_t channel, uint64_t seq, Served served, const absl::Status& outcome);

  const CommunicatorKey key_;
  const uint64_t id_;
  const uint64_t epoch_;
  const int world_;
  OperationHost* const host_;
  const std::vector<int32_t> numbers_;
  const UniqueFd board_fd_;
  const std::shared_ptr<const Mapping> mapping_;
  const board::Board board_;
  board::Server server_;
  const int64_t made_ns_ = NowNs();
  Count exchanging_ns_;

  mutable std::mutex mutex_;
  std::vector<Member> members_;
  int gone_ = 0;
  bool failure_noticed_ = false;
  std::unordered_map<uint32_t, ChannelQueue> queues_;
  // Of participants whose calls the daemon posts: (channel, participant) → the last sequence.
  std::map<std::pair<uint32_t, int>, uint64_t> posted_;
  EventLoop::TimerId timer_ = 0;
  int64_t timer_ns_ = kNeverNs;

  NodeEngine* engine_ = nullptr;
  uint64_t wire_id_ = 0;
  struct RemoteChannel {
    uint64_t next = 1;  // the sequence that the engine gets next, or has if busy
    bool busy = false;
    int64_t began_ns = 0;
    int rank = 0;  // of the call in the works, by its place here
    board::CallRecord record;
    int64_t deadline_ns = kNeverNs;
  };
  std::vector<NodeKey> nodes_;
  std::vector<int32_t> node_of_;  // by number
  int node_ = 0;
  std::unordered_map<uint32_t, RemoteChannel> remote_;

  const std::string use_words_;  // for who frees what an operation uses
  std::unordered_map<uint32_t, DeviceChannel> device_;
  std::shared_ptr<Captures> captures_;  // null without GPU memory
  std::shared_ptr<GpuWorker> home_;     // of the first memory on a GPU that was seen
};

}  // namespace shunt::daemon
