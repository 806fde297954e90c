// Both ends of a session's rings (layout.h).
//
// The client may have at most `entries` operations outstanding: submitted, completion not yet
// collected. So a completion always has a slot, and the daemon never waits for a client that does
// not collect.
//
// The daemon's end believes nothing: it counts with its own copies of all indices, copies each
// entry exactly once and checks the copy. What a hostile client can do is to break its own session.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/ring/layout.h"

namespace shunt::ring {

// Fills the header of fresh, zeroed memory of BytesFor(entries) bytes. `entries` is a power of two,
// at most kMaxEntries. The daemon does this before it hands the memory out.
void Initialize(std::byte* memory, uint32_t entries);

// OK if `entries` may be asked for: a power of two from 2 to kMaxEntries.
absl::Status CheckEntries(uint32_t entries);

// The client's end. Push and PopCompletions may run at once, each by one thread at a time. Does not
// own the memory.
class RingClient {
 public:
  RingClient() = default;
  // `memory` is what the daemon made: `entries` comes from its reply, `bytes` from the mapping.
  // INVALID_ARGUMENT if the header says otherwise.
  static absl::StatusOr<RingClient> Attach(std::byte* memory, size_t bytes, uint32_t entries);

  RingClient(RingClient&& other) noexcept { *this = std::move(other); }
  RingClient& operator=(RingClient&& other) noexcept;

  enum class Pushed { kFull, kDone, kDoneRingDoorbell };
  // kFull: no room for the entry, or (what completes) `entries` operations are outstanding: nothing
  // was pushed. kDoneRingDoorbell: pushed, and the daemon sleeps: write the doorbell eventfd.
  Pushed Push(const Submission& submission);

  // Moves completions that are there into `out`; returns how many. Never blocks.
  size_t PopCompletions(std::span<Completion> out);
  // Sleeps until a completion may be there or `timeout` (see FutexWait) has passed; true if one is
  // there.
  bool WaitForCompletion(std::chrono::nanoseconds timeout);

  uint32_t outstanding() const { return outstanding_.load(std::memory_order_relaxed); }
  uint32_t entries() const { return mask_ + 1; }
  // See Header::regions_freed.
  uint32_t regions_freed() const { return header_->regions_freed.load(std::memory_order_acquire); }

 private:
  Header* header_ = nullptr;
  Submission* submissions_ = nullptr;
  Completion* completions_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t sq_tail_ = 0;                   // Push's
  uint32_t cq_head_ = 0;                   // PopCompletions'
  std::atomic<uint32_t> outstanding_ = 0;  // up in Push, down in PopCompletions
};

// The daemon's end. Thread-compatible: Pop by one thread at a time, Complete by one thread at a
// time; the two may run at once. Does not own the memory.
class RingServer {
 public:
  RingServer() = default;
  // `memory`: Initialize(memory, entries) was called; nobody else may change `entries` here.
  RingServer(std::byte* memory, uint32_t entries);

  RingServer(RingServer&& other) noexcept { *this = std::move(other); }
  RingServer& operator=(RingServer&& other) noexcept;

  bool valid() const { return header_ != nullptr; }
  uint32_t entries() const { return mask_ + 1; }

  // True and a copy of the next entry, or false if there is none. INVALID_ARGUMENT if the indices
  // or the count of outstanding operations are impossible: the session is broken, call nothing but
  // this object's destructor from then on.
  absl::StatusOr<bool> Pop(Submission* out);

  // Completes one submission that Pop returned. False if the client has broken the rules
  // (completions that it was never owed); its own slot may then be overwritten, nobody else's.
  bool Complete(uint64_t token, int32_t code);

  // Before sleeping: MayNotSleep() says the doorbell is needed, and true if an entry came
  // meanwhile. Awake(): submitters need not ring.
  bool MayNotSleep();
  void Awake() { header_->daemon_sleeps.store(0, std::memory_order_relaxed); }

  void RegionFreed() { header_->regions_freed.fetch_add(1, std::memory_order_release); }

  // Entries that nobody has popped yet, as the client says: not more than there is room for. Any
  // thread.
  uint32_t waiting() const {
    const uint32_t entries = header_->sq_tail.load(std::memory_order_relaxed) -
                             header_->sq_head.load(std::memory_order_relaxed);
    return entries > mask_ + 1 ? 0 : entries;
  }

  // Entries that complete, popped and not completed.
  uint32_t outstanding() const { return outstanding_.load(std::memory_order_relaxed); }

 private:
  Header* header_ = nullptr;
  Submission* submissions_ = nullptr;
  Completion* completions_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t sq_head_ = 0;                   // Pop's
  uint32_t cq_tail_ = 0;                   // Complete's
  std::atomic<uint32_t> outstanding_ = 0;  // up in Pop, down in Complete
};

}  // namespace shunt::ring
