// Moves the bytes of a plan between regions of which one side at least is GPU memory: walks it into
// batches of copy runs, which the GPU's worker executes while the next ones are walked.
//
//   Start ─ inline: a short batch ─► pool: batch ► batch ► …      4 under way at most
//                     │                       └─ long pieces: a copy each, by copy engine
//                     └ not imported yet: a helper thread first
#pragma once

#include <array>
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
  // A full batch, or a long piece, that waits for room in the ring.
  struct Next {
    RunBatch batch;
    uint32_t runs = 0;
    uint64_t bytes = 0;
    p2p::CopyRun piece;  // without a batch
  };
  enum class Step { kMore, kLater, kNoMore };

  void Run(uint32_t runs_max);
  void RunSoon();
  Step One(uint32_t runs_max, std::unique_lock<std::mutex>& lock);
  Step Fill(uint32_t runs_max);
  Step SubmitLocked();
  Step ImportLocked();
  void Import();
  void CommandEnded(uint64_t number, const absl::Status& outcome);
  std::function<void()> Again();
  void StopLocked(const absl::Status& why);
  // True if all of it is over: the caller calls End after the lock.
  bool OverLocked() const { return !running_ && under_way_.empty() && begun_; }
  void End();

  Setup setup_;           // its memory goes with the end
  const size_t sources_;  // of setup_.memory

  std::mutex mutex_;
  bool begun_ = false;
  // Somebody walks, or will: a closure of the pool, an import, a wait for a batch or for room.
  bool running_ = false;
  absl::Status status_;
  uint64_t next_number_ = 1;
  std::vector<std::pair<uint64_t, uint64_t>> under_way_;  // number, command
  Ended ended_;

  // Of who walks; also without the lock.
  bool located_ = false;
  bool touched_ = false;  // some command was taken: another process cannot go on with it
  int imports_left_ = 4;
  GpuEngine::Addresses addresses_;
  p2p::PlanCursor cursor_;
  p2p::CopyRun rest_;  // of a run that was cut
  bool more_ = true;
  uint32_t copies_ = 0;
  uint32_t batches_ = 0;
  Next next_;
};

}  // namespace shunt::daemon
