// Moves the bytes of a plan between memory and one store, a few batches at a time: what it holds
// does not grow with the transfer, and other transfers' batches come in between.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/p2p/memory.h"
#include "runtime/p2p/transfer_plan.h"
#include "runtime/storage/store_host.h"

namespace shunt::daemon {

// All of it happens on the store's thread.
class StoreMover : public std::enable_shared_from_this<StoreMover> {
 public:
  struct Setup {
    std::shared_ptr<const p2p::TransferPlan> plan;
    bool write = false;  // the destination is in the store
    storage::Urgency urgency = storage::Urgency::kBulk;
    std::shared_ptr<storage::StoreHost> host;
    // Of the other side's regions, and of the store's: by the index that copy runs have.
    p2p::Bases bases;
    std::vector<storage::ObjectId> objects;
  };
  using Ended = std::function<void(const absl::Status&)>;

  // What the daemon takes, about, for what one of the plan has under way.
  static uint64_t HeldBytes(const p2p::TransferPlan& plan);

  explicit StoreMover(Setup setup)
      : setup_(std::move(setup)), cursor_(*setup_.plan, 0, setup_.plan->bytes()) {}

  // Any thread. `ended` is called once; memory is the owner's again then.
  void Start(Ended ended);
  // Any thread, also before Start. Ends it soon, for that reason, unless all has been moved. The
  // first reason counts.
  void Cancel(const absl::Status& why);
  // Of batches that are done. Any thread.
  uint64_t bytes_done() const { return bytes_done_.load(std::memory_order_relaxed); }

 private:
  std::vector<storage::Piece> NextBatch();
  void Advance();
  void Took(uint64_t batch, const storage::Completion& completion);
  void Stop(const absl::Status& why);

  const Setup setup_;
  p2p::PlanCursor cursor_;
  p2p::CopyRun rest_;  // of a run that was cut
  bool more_ = true;
  absl::Status status_;
  uint64_t next_batch_ = 1;
  std::atomic<uint64_t> bytes_done_ = 0;
  // Under way: the batch, and what its store cancels it by.
  std::vector<std::pair<uint64_t, uint64_t>> under_way_;
  Ended ended_;
};

}  // namespace shunt::daemon
