// One rank of a communicator: its board, and what the board's engine needs of the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/cuda/stream_calls.h"
#include "client/src/session.h"
#include "runtime/board/member.h"
#include "runtime/core/fd.h"

namespace shunt::client {

class Group;

// Thread-safe. Kept alive by its handle and by its operations' handles; keeps its session alive.
class Communicator final : private board::MemberHost {
 public:
  struct Options {
    std::string name;
    std::string job;
    int32_t rank = 0;
    int32_t world_size = 0;
    int64_t timeout_ns = 0;          // of the join
    int64_t default_timeout_ns = 0;  // of calls that name none
    std::string algorithm;
    bool deterministic = false;
    bool device = false;  // its buffers may be GPU memory
  };

  // Blocks until all ranks have joined.
  static absl::StatusOr<std::shared_ptr<Communicator>> Join(std::shared_ptr<Session> session,
                                                            const Options& options);
  // A collective call on this communicator. Null for a negative colour.
  absl::StatusOr<std::shared_ptr<Communicator>> Split(int32_t color, int32_t key,
                                                      int64_t timeout_ns);
  ~Communicator() override;

  // Tells the daemon that this rank is gone. Idempotent.
  void Leave();

  // Ends everything on every rank, and lets this rank's streams pass.
  void Abort(std::string_view reason);

  board::Member& member() { return *member_; }
  const board::Board& board() const { return board_; }
  uint64_t id() const { return id_; }
  bool device() const { return options_.device; }
  // Of a communicator with device().
  cuda::StreamCalls& streams() { return *streams_; }
  // Ends what is over on streams, as far as it has no handle.
  void SettleStreams() {
    if (streams_ != nullptr) streams_->Settle();
  }
  int32_t rank() const { return options_.rank; }
  int32_t world_size() const { return options_.world_size; }
  int64_t default_timeout_ns() const { return options_.default_timeout_ns; }
  Session& session() { return *session_; }

  // Around everything that an operation does, from its post to its end, because it holds pointers
  // into peers' regions meanwhile.
  void BeginOperation() {
    active_.fetch_add(1, std::memory_order_relaxed);
    if (__builtin_expect(session_->HasStaleRegions(), 0)) session_->DropStaleRegions();
  }
  void EndOperation() { active_.fetch_sub(1, std::memory_order_release); }
  uint32_t active() const { return active_.load(std::memory_order_acquire); }

  absl::Status Watch(uint32_t channel, uint64_t sequence, int event_fd);

  // The group that the calling thread has open; null if none. Costs a load where no thread has one.
  Group* OpenGroup() {
    return __builtin_expect(open_groups_.load(std::memory_order_relaxed) == 0, 1) ? nullptr
                                                                                  : FindGroup();
  }
  // FAILED_PRECONDITION if this thread has one open.
  absl::Status BeginGroup();
  // Null if this thread has none open.
  std::unique_ptr<Group> TakeGroup();

 private:
  Communicator(std::shared_ptr<Session> session, Options options);

  Group* FindGroup();
  absl::Status Submit(ring::Opcode opcode, uint32_t channel, uint64_t seq, const board::Call& call);
  absl::Status Attach(const Joined& joined, int board_fd);

  // board::MemberHost
  std::byte* Resolve(int rank, uint64_t region, uint64_t offset, uint64_t bytes) override;
  absl::Status Notify(uint32_t channel, uint64_t seq, bool serve, int64_t deadline_ns) override;
  absl::Status Serve(uint32_t channel, uint64_t seq, const board::Call& call) override;
  absl::StatusOr<Staging> AllocateStaging(size_t bytes) override;
  bool DaemonGone() override { return session_->lease().Gone(); }
  board::RegionRef Find(const void* p, size_t bytes) override {
    return session_->regions().Find(p, bytes);
  }

  const std::shared_ptr<Session> session_;
  const Options options_;
  uint64_t id_ = 0;
  uint64_t epoch_ = 0;
  std::vector<int32_t> numbers_;  // of this node's ranks
  int rank_on_node_ = 0;
  Mapping board_memory_;
  board::Board board_;
  std::unique_ptr<board::Member> member_;
  std::unique_ptr<cuda::StreamCalls> streams_;  // of one with device()
  std::atomic<bool> left_{false};
  std::atomic<uint64_t> splits_{0};

  alignas(64) std::atomic<uint32_t> active_{0};
  std::atomic<int> open_groups_{0};

  std::mutex mutex_;
  std::vector<void*> staging_;
  std::vector<std::unique_ptr<Group>> groups_;  // one a thread, open
};

}  // namespace shunt::client
