// One rank's side of a board: posts calls, works while it waits, sleeps when there is nothing to
// do.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/board/layout.h"
#include "runtime/collectives/exec/reduce.h"
#include "runtime/collectives/plan/local_plan.h"

namespace shunt::board {

// A place in a region; region 0 is "no region" (ids start at 1).
struct RegionRef {
  uint64_t region = 0;
  uint64_t offset = 0;
};

// The memory that this process can reach.
class RegionResolver {
 public:
  virtual ~RegionResolver() = default;
  // Address of [offset, offset + bytes) of a region owned by `rank`'s session (on `board`'s
  // communicator); null if there is no such memory. May map it on first use. The answer stays valid
  // until the operation that asked has ended. Any thread.
  virtual std::byte* Resolve(int rank, uint64_t region, uint64_t offset, uint64_t bytes) = 0;
};

struct Call {
  CollectiveSpec spec;            // validated
  const std::byte* in = nullptr;  // null where the rank has no input, or the size is 0
  std::byte* out = nullptr;
  Scalar scalar = {};                     // kPremulSum
  const uint64_t* send_counts = nullptr;  // all_to_all_v: world entries each
  const uint64_t* send_displs = nullptr;
  const uint64_t* recv_counts = nullptr;
  const uint64_t* recv_displs = nullptr;
  int peer = -1;            // send, receive
  int64_t deadline_ns = 0;  // CLOCK_MONOTONIC
  // On a device board, of a served call: where the caller's stream meets it. For the host alone.
  struct Gate {
    RegionRef words;  // region 0: no stream
    uint32_t generation = 0;
  } gate = {};
};

// What a member needs of its session.
class MemberHost : public RegionResolver {
 public:
  // Tells the daemon about (channel, seq). `serve`, called before the post: it must see this
  // operation through, by `deadline_ns` (CLOCK_MONOTONIC); RESOURCE_EXHAUSTED if the ring is full
  // of operations whose completions were never collected. Otherwise: there is news of it (the last
  // rank has posted, or it has ended); this must not fail while the daemon lives, so it waits for
  // room.
  virtual absl::Status Notify(uint32_t channel, uint64_t seq, bool serve, int64_t deadline_ns) = 0;
  // Notify with `serve`, for the whole call.
  virtual absl::Status Serve(uint32_t channel, uint64_t seq, const Call& call);
  // A staging region for memory outside regions, owned by the member's session: two windows of a
  // channel's inputs, or of its outputs. Called once for each channel and direction of use, from
  // the calling thread.
  struct Staging {
    uint64_t region = 0;
    std::byte* data = nullptr;
  };
  virtual absl::StatusOr<Staging> AllocateStaging(size_t bytes) = 0;
  // True once the daemon's end of the lease is closed. Asked now and then while waiting.
  virtual bool DaemonGone() = 0;
  // The region, if any, that wholly holds [p, p + bytes); {0, 0} if none.
  virtual RegionRef Find(const void* p, size_t bytes) = 0;
};

// An asynchronous call in flight. Owned by the caller; must be done before it is destroyed.
class Operation;

// A waiting rank first spins, then gives its CPU away between looks, then sleeps. Yielding matters
// even where there is a CPU for every rank: the scheduler likes to put a waker and its sleeper on
// one CPU, and only two runnable threads make it move one.
struct MemberOptions {
  int64_t spin_ns = 2'000;     // since the wait began; 0 where ranks outnumber CPUs
  int64_t yield_ns = 100'000;  // likewise, includes the spinning
  bool remote_spin = true;     // also while other nodes are waited for
  bool counts = true;          // tallies (tally.h); false only to measure what they cost
};

// Thread-safe. Calls take effect in the order of their Run and Start.
class Member {
 public:
  Member(Board board, int rank, MemberHost* host, MemberOptions options);
  ~Member();
  Member(const Member&) = delete;

  int rank() const;
  int world() const;

  // Blocks until the call's outcome is decided and this rank's output is written.
  absl::Status Run(const Call& call);

  // Posts and returns. `served`: the daemon sees it through where its buffers are in regions; else
  // it moves in Poll and Wait only.
  absl::StatusOr<std::shared_ptr<Operation>> Start(const Call& call, bool served = true);
  // True when it has ended; *outcome is then its status. Makes progress, never blocks.
  bool Poll(Operation& op, absl::Status* outcome);
  // True when ended before `deadline_ns` (CLOCK_MONOTONIC).
  bool Wait(Operation& op, int64_t deadline_ns, absl::Status* outcome);
  // (channel, sequence) of an operation that the daemon sees through; false if it moves only in
  // Poll/Wait.
  static bool ServedBy(const Operation& op, uint32_t* channel, uint64_t* seq);

  // The call in words, and which ranks it waits for.
  static std::string PendingText(const Operation& op);

  // True if an unfinished operation of this member touches the region; `what` names it.
  bool Uses(uint64_t region, std::string* what);

  // Ends everything with kAborted.
  void Abort(std::string_view reason);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shunt::board
