// One process of a GPU's worker, as shuntd sees it: its ring, what is under way there, its batches
// of runs. It outlives the process for whoever holds a batch; nothing is begun there then.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/gpu/workers.h"
#include "runtime/core/fd.h"
#include "runtime/gpu/worker/protocol.h"
#include "runtime/gpu/worker/ring_ends.h"
#include "runtime/memory/region_table.h"

namespace shunt::daemon {

// Thread-safe, but for what is the completion thread's.
class WorkerLink : public std::enable_shared_from_this<WorkerLink> {
 public:
  using Ended = GpuWorker::Ended;
  static absl::StatusOr<std::shared_ptr<WorkerLink>> Make(uint64_t incarnation, std::string label);

  uint64_t incarnation() const { return incarnation_; }
  int ring_fd() const { return ring_fd_.get(); }
  int worker_doorbell() const { return worker_doorbell_.get(); }
  int shuntd_doorbell() const { return shuntd_doorbell_.get(); }

  // As GpuWorker's.
  absl::StatusOr<uint64_t> Submit(absl::FunctionRef<void(gpu::Command&)> fill, Ended ended);
  void Cancel(uint64_t id);
  RunBatch TakeBatch(std::function<void()> when_free);

  // Where gates may lie: memory of `region`, in the worker's addresses.
  void AddHost(uint64_t address, std::weak_ptr<memory::Region> region);
  void RemoveHost(uint64_t address);

  // For whoever looks whether the process is alive.
  uint64_t under_way() const;
  uint64_t turns() const { return owner_.turns(); }
  bool sleeps() const { return owner_.worker_sleeps(); }
  // It has said that its context is lost: it ends.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

  // ---- The completion thread's
  // Calls back for all that has ended. True if anything had.
  bool Drain();
  // True: look again instead; else the doorbell will be rung.
  bool MayNotSleep() { return owner_.MayNotSleep(); }
  void Awake() { owner_.Awake(); }
  // There are cancels that the ring had no room for.
  bool owes_cancels() const;
  // The process is gone: releases the gates of all that is under way, and calls back.
  void End(const absl::Status& why);

 private:
  friend class RunBatch;
  struct UnderWay {
    Ended ended;
    bool repeats;
    std::vector<gpu::Gate> gates;
  };
  using UnderWayMap = std::unordered_map<uint64_t, UnderWay>;

  WorkerLink(uint64_t incarnation, std::string label)
      : incarnation_(incarnation), label_(std::move(label)) {}
  void PushCancelsLocked();
  void GiveBack(uint32_t batch);
  void ReleaseGates(const UnderWay& one);
  absl::Status StatusOf(int32_t code) const;

  const uint64_t incarnation_;
  const std::string label_;
  UniqueFd ring_fd_, worker_doorbell_, shuntd_doorbell_;
  Mapping memory_;
  gpu::Ring* ring_ = nullptr;
  gpu::RingOwner owner_;  // pushing: under mutex_
  std::atomic<bool> lost_ = false;

  mutable std::mutex mutex_;
  bool ended_ = false;
  uint64_t last_id_;
  uint64_t passing_ = 0;  // under way and not repeating
  UnderWayMap under_way_;
  std::vector<uint64_t> cancels_;
  std::vector<uint32_t> free_batches_;
  std::vector<std::function<void()>> batch_waiters_;
  std::map<uint64_t, std::weak_ptr<memory::Region>> hosts_;  // by address
};

}  // namespace shunt::daemon
