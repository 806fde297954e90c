// Executes a plan between memory that is mapped here. It has no thread: whoever waits, works.
//
//   payload  [chunk 0][chunk 1][chunk 2][chunk 3]...     claimed in order by compare-and-swap
//              │          │        └ worker b              each worker walks the copy runs of its
//              └ worker a └ worker a                       chunk with a cursor of its own
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/collectives/exec/reduce.h"
#include "runtime/p2p/memory.h"
#include "runtime/p2p/transfer_plan.h"

namespace shunt::p2p {

struct CopyOptions {
  // A claim and a cursor's start cost a fraction of a microsecond, a chunk ten of them. Between two
  // chunks a worker notices a cancel.
  uint64_t chunk_bytes = 256 << 10;
  // How many will work at a time: what exceeds their caches is streamed past them.
  int workers = 1;
};

// Whether a copy of so many bytes should be streamed: source and destination don't fit the second
// level caches of so many workers.
StorePolicy StoresFor(uint64_t bytes, int workers);

enum class Outcome : uint8_t {
  kPending,    // chunks are left, or in the works
  kCopied,     // all bytes are there
  kCancelled,  // and nobody touches the memory any more; the destination holds any part of it
};

// Thread-safe. The memory stays mapped until the outcome is not kPending and no call is in
// progress.
class Copier {
 public:
  // Errors of the memories, and INVALID_ARGUMENT for a chunk of 0 bytes.
  static absl::StatusOr<std::unique_ptr<Copier>> Make(std::shared_ptr<const TransferPlan> plan,
                                                      RegionMemory& source,
                                                      RegionMemory& destination,
                                                      CopyOptions options = {});

  // Copies chunks until none can be claimed or `max_chunks` have been; its result is how many. Does
  // not wait for other workers.
  uint64_t Work(uint64_t max_chunks = UINT64_MAX);
  // Works, then sleeps until others have finished what they had claimed. Never kPending.
  Outcome Wait();
  // No chunk begins any more. False if all had begun: the outcome is then kCopied, soon. Does not
  // wait for chunks in the works.
  bool Cancel();

  // What a thread reads after it has seen kCopied includes all bytes.
  Outcome outcome() const;
  uint64_t chunks() const { return chunks_; }
  // Of chunks that are done. Any time.
  uint64_t bytes_done() const {
    return std::min(done_.load(std::memory_order_relaxed) * chunk_bytes_, plan_->bytes());
  }
  const TransferPlan& plan() const { return *plan_; }

 private:
  Copier(std::shared_ptr<const TransferPlan> plan, Bases source, Bases destination,
         CopyOptions options);
  bool Claim(uint64_t* chunk);
  void Run(uint64_t chunk) const;
  void WakeIfOver();

  const std::shared_ptr<const TransferPlan> plan_;
  const Bases source_;
  const Bases destination_;
  const uint64_t chunk_bytes_;
  const uint64_t chunks_;
  const StorePolicy policy_;
  // Chunks claimed; kClosed is added when it is cancelled.
  alignas(64) std::atomic<uint64_t> claimed_ = 0;
  alignas(64) std::atomic<uint64_t> done_ = 0;
  std::atomic<uint32_t> over_ = 0;  // a futex word
};

}  // namespace shunt::p2p
