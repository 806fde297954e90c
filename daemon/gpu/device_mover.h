// Moves the bytes of a plan between regions of which one side at least is GPU memory: walks it into
// batches of copy runs, which the GPU's worker executes while the next ones are walked. Threads of
// the pool walk a part of the payload each, at once.
//
//   payload   [ 512 |  1024  |  1024  | ... |    4096    |    4096    | ...
//              Start, inline  └ pool: one part a step, whoever comes, a batch or a copy each
//
// Parts are claimed in bytes, for a plan's cursor begins anywhere at little cost. How many runs
// they come to is known once they are walked: what does not fit in a batch goes back, and the next
// part is cut by what the last one had.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/gpu/gpu_engine.h"
#include "runtime/p2p/transfer_plan.h"
#include "runtime/p2p/work_pool.h"

namespace shunt::daemon {

// Of lists of GPU memory. (Their regions have numbers of their own: 0 is memory of the host.)
inline constexpr p2p::Space kDeviceSpace = 3;

// Thread-safe. Kept by what it has under way.
class DeviceMover : public std::enable_shared_from_this<DeviceMover> {
 public:
  struct Setup {
    GpuEngine* engine = nullptr;
    p2p::WorkPool* pool = nullptr;
    std::shared_ptr<GpuWorker> worker;
    std::shared_ptr<const p2p::TransferPlan> plan;
    // Regions as copy runs count them: the source's, then the destination's.
    std::vector<GpuMemory> memory;
    p2p::Priority priority = p2p::Priority::kBulk;
  };
  using Ended = std::function<void(const absl::Status&)>;

  explicit DeviceMover(Setup setup);

  // Once. `ended` is called once, on any thread; nobody touches the memory any more then, and it is
  // held no more. Takes some microseconds at most.
  void Start(Ended ended);
  // Also before Start. Ends it soon, for that reason, unless all has been moved. The first reason
  // counts.
  void Cancel(const absl::Status& why);

 private:
  class Walk;
  using Addresses = std::shared_ptr<const GpuEngine::Addresses>;

  // Of the payload.
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t bytes() const { return end - begin; }
  };
  // A full batch, or a long piece.
  struct Part {
    RunBatch batch;
    uint32_t runs = 0;
    uint64_t bytes = 0;
    p2p::CopyRun piece;   // without runs
    Addresses addresses;  // what it was walked for
  };

  bool Step(const Walk* walk);
  // A step's work, if there is any.
  void One(std::unique_lock<std::mutex>& lock);
  bool MayGoOnLocked() const;
  void KeepWalkingLocked();
  Range ClaimLocked(uint32_t* runs);
  void Fill(const Range& range, uint32_t runs_max, Part* part) const;
  void FilledLocked(const Range& range, Part part);
  void SubmitLocked(Part part);
  absl::StatusOr<uint64_t> SendLocked(Part* part, uint64_t number);
  void FillCommand(const Part& part, uint32_t batch, gpu::Command* command) const;
  void RestartLocked();
  void ImportLocked();
  void Import();
  void WaitEnded(const absl::Status& status);
  void CommandEnded(uint64_t number, const absl::Status& outcome);
  void StopLocked(const absl::Status& why);
  size_t HeldLocked() const { return walking_ + under_way_.size() + ready_.size(); }
  // True if all of it is over: the caller calls End after the lock.
  bool OverLocked() const;
  void End();

  Setup setup_;           // its memory goes with the end
  const size_t sources_;  // of setup_.memory

  std::mutex mutex_;
  bool begun_ = false;
  absl::Status status_;
  Ended ended_;
  const Walk* walk_ = nullptr;  // in the pool; null: none is
  std::vector<Range> todo_;     // that nobody walks or has walked
  uint64_t left_ = 0;           // bytes in it
  uint32_t walking_ = 0;        // threads
  std::vector<Part> ready_;     // that had no room in the ring
  uint64_t next_number_ = 1;
  std::vector<std::pair<uint64_t, uint64_t>> under_way_;  // number, command
  // Callbacks to come, of an import, or for a batch or for room. Nothing goes on before.
  int waits_ = 0;
  bool starved_ = false;  // no batch is free: till one of its own comes back
  Addresses addresses_;   // null: to be found
  bool touched_ = false;  // some command was taken: another process cannot go on with it
  int imports_left_ = 4;
  uint64_t run_bytes_;  // as the last part had them
  uint32_t claims_ = 0;
  std::atomic<uint32_t> copies_ = 0;
};

}  // namespace shunt::daemon
