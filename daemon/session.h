// A session: a client process's lease. What it is and what it holds; who may touch what is said at
// each member.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "daemon/event_loop.h"
#include "runtime/core/fd.h"
#include "runtime/memory/region_table.h"
#include "runtime/ring/ring.h"

namespace shunt::daemon {

class Communicator;

// The process at the other end of a connection, as the kernel recorded it when it connected.
struct Peer {
  int32_t pid = 0;  // 0: in a PID namespace that we can't see
  uint32_t uid = 0;
  // Null if the kernel gave none.
  std::shared_ptr<const UniqueFd> pidfd;
};

using Token = std::array<uint8_t, 16>;

// An operation that the daemon posted for a rank without libshunt. Thread-safe.
class Operation {
 public:
  using Waiter = std::function<void(const absl::Status&)>;

  explicit Operation(uint64_t id) : id_(id) {}
  uint64_t id() const { return id_; }

  void Finish(const absl::Status& outcome);
  bool done() const;
  // Calls `waiter` once with the outcome, at once if it is there. The result can cancel it.
  uint64_t Wait(Waiter waiter);
  // True if the waiter will not be called any more because of this call.
  bool CancelWait(uint64_t waiter);

  // Regions that it uses, until it has ended. Written before the operation is posted.
  std::vector<memory::RegionUse> uses;

 private:
  const uint64_t id_;
  mutable std::mutex mutex_;
  bool done_ = false;
  absl::Status outcome_;
  uint64_t next_waiter_ = 1;
  std::unordered_map<uint64_t, Waiter> waiters_;
};

struct Membership {
  std::shared_ptr<Communicator> communicator;
  int rank = -1;
  bool daemon_posts = false;  // joined over gRPC: the daemon posts its calls
};

class Session {
 public:
  Session(uint64_t id, Peer peer, std::string name, Token token)
      : id(id), peer(std::move(peer)), name(std::move(name)), token(token), opened_ns(NowNs()) {}

  const uint64_t id;
  const Peer peer;
  const std::string name;
  const Token token;
  const int64_t opened_ns;

  memory::Owner owner() const { return {id, peer.uid}; }

  // Set once, when it ends: whoever sees it after taking the lock of a table adds nothing for it
  // any more.
  std::atomic<bool> ended = false;
  // A lease connection holds it.
  std::atomic<bool> attached = false;

  // Rings. Set before the session is visible to other threads; `ring.Pop` and sleeping are the
  // scheduler's.
  Mapping ring_memory;
  UniqueFd doorbell;
  ring::RingServer ring;
  void Complete(uint64_t ring_token, absl::StatusCode code);
  void RegionFreed();

  // Descriptors that it has asked to be signalled through and that were not yet; see
  // Communicator::Watch.
  std::atomic<int> watches = 0;
  // Calls that graphs of its have captured; see Communicator::Capture.
  std::atomic<int> captures = 0;

  // Of the services: watches the process; memory that is no region; under `mutex`, called once it
  // has ended.
  UniqueFd pidfd;
  EventLoop::WatchId pid_watch = 0;  // under `mutex`
  uint64_t charged_bytes = 0;
  std::function<void()> on_end;

  // Communicators that it is a member of, and operations that the daemon posted for it.
  mutable std::mutex mutex;
  std::unordered_map<uint64_t, Membership> memberships;
  std::unordered_map<uint64_t, std::shared_ptr<Operation>> operations;

  // NOT_FOUND if it is not a member.
  absl::StatusOr<Membership> FindMembership(uint64_t communicator_id) const;

 private:
  std::mutex complete_mutex_;
};

}  // namespace shunt::daemon
