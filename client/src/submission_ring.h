// The session's rings, for its threads: submissions from all of them, and completions that whoever
// looks collects for all.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "absl/status/status.h"
#include "client/src/lease_connection.h"
#include "runtime/core/fd.h"
#include "runtime/ring/ring.h"

namespace shunt::client {

// Thread-safe once attached. Starts no thread.
class SubmissionRing {
 public:
  using Sink = std::function<void(const ring::Completion&)>;

  // `sink` gets each completion, one at a time, with a lock held: it calls nothing of this object.
  // `lease` outlives this.
  SubmissionRing(LeaseConnection* lease, Sink sink) : lease_(lease), sink_(std::move(sink)) {}

  absl::Status Attach(int ring_fd, UniqueFd doorbell, uint32_t entries);

  // Never given twice in this session.
  uint64_t NextToken() { return next_token_.fetch_add(1, std::memory_order_relaxed); }
  // Gives the daemon work; see ring::Opcode. RESOURCE_EXHAUSTED if it has too much already.
  absl::Status Submit(const ring::Submission& submission);

  // Hands on the completions that are there, unless another thread is at it. Never blocks.
  // False if another thread is.
  bool Collect();
  // Blocks until `done()`, which a completion makes true, or the deadline (CLOCK_MONOTONIC): what
  // done() said last. Of the threads that wait, one looks at the ring, for all of them. Also false
  // when the daemon is gone: then gone() is true.
  bool Wait(const std::function<bool()>& done, int64_t deadline_ns);
  bool gone() const { return gone_.load(std::memory_order_acquire); }

  uint32_t regions_freed() const { return ring_.regions_freed(); }
  // In a forked child. Async-signal-safe.
  void CloseInChild();

 private:
  // With collecting_ held.
  size_t Pop();
  // With collecting_ held: waits a while for completions and hands them on.
  void Look(const std::function<bool()>& done, int64_t deadline_ns);

  LeaseConnection* const lease_;
  const Sink sink_;
  Mapping memory_;
  UniqueFd doorbell_;
  ring::RingClient ring_;
  std::atomic<uint64_t> next_token_{1};
  std::atomic<bool> gone_{false};
  std::mutex pushing_;
  std::mutex collecting_;

  // Among those that wait. Locked after collecting_.
  std::mutex waiting_;
  std::condition_variable looked_;
  bool looking_ = false;  // one of them looks
};

}  // namespace shunt::client
