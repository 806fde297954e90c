// The processes that drive GPUs, one a GPU (shunt-gpu-worker, runtime/gpu/worker): their start,
// their watch, their replacement; what they have imported; and the commands that they execute.
//
//   AddressOf ──► control socket ──► worker       Submit ──► command ring ──► worker
//             ◄── reply (loop's thread)           Ended  ◄── done ring (completion thread)
//
// A process is started with the first region of its GPU, and stays. When it ends, another takes its
// place: all memory is imported anew, at other addresses, and what was under way ends UNAVAILABLE.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/event_loop.h"
#include "daemon/gpu/gpu_listing.h"
#include "runtime/gpu/worker/protocol.h"
#include "runtime/memory/region_table.h"

namespace shunt::daemon {

struct DeviceRegion;
class GpuCompletions;
class WorkerLink;

// Host memory as a worker knows it.
struct HostAddress {
  uint64_t device = 0;  // for its kernels
  uint64_t cpu = 0;     // for its CPU
};

// A place for copy runs in a worker's ring, for as long as this object lives: until the command
// that names it has ended. Move-only; thread-compatible.
class RunBatch {
 public:
  RunBatch() = default;
  RunBatch(RunBatch&& other) noexcept = default;
  RunBatch& operator=(RunBatch&& other) noexcept;
  ~RunBatch();

  explicit operator bool() const { return link_ != nullptr; }
  gpu::Run* runs() const { return runs_; }   // kRunsPerBatch of them
  uint32_t index() const { return index_; }  // Command::batch
  uint64_t incarnation() const;              // of whose ring it is

 private:
  friend class WorkerLink;
  RunBatch(std::shared_ptr<WorkerLink> link, gpu::Run* runs, uint32_t index)
      : link_(std::move(link)), runs_(runs), index_(index) {}
  std::shared_ptr<WorkerLink> link_;
  gpu::Run* runs_ = nullptr;
  uint32_t index_ = 0;
};

// One GPU. Thread-safe.
class GpuWorker : public std::enable_shared_from_this<GpuWorker> {
 public:
  ~GpuWorker();
  const GpuListing& gpu() const;
  // For errors: "GPU 0 (NVIDIA H200, GPU-…)".
  const std::string& label() const;

  // Counts the processes of this GPU; 0: none yet. Addresses and batches are good for the process
  // of one incarnation only: ask for this number first, then for them, and give it to Submit.
  uint64_t incarnation() const;

  // Where a region lies; imports it on first use. Waits for the worker, some seconds at most:
  // DEADLINE_EXCEEDED. UNAVAILABLE: the GPU is served no more. Others: the worker cannot open it.
  // Not on the threads of GpuWorkers.
  absl::StatusOr<uint64_t> AddressOf(const std::shared_ptr<DeviceRegion>& region);
  // The same for memory of a session's: mapped, and pinned, until the region is gone.
  absl::StatusOr<HostAddress> AddressOf(const std::shared_ptr<memory::Region>& region);
  // Without waiting; `done` is called once, perhaps at once, perhaps on the loop's thread.
  using Imported = std::function<void(const absl::StatusOr<uint64_t>&)>;
  void Import(const std::shared_ptr<DeviceRegion>& region, Imported done);

  // How a command has ended, on the completion thread, once. OK; CANCELLED; what the worker says;
  // UNAVAILABLE, naming the GPU and the cause: its process has ended. The done words of its gates
  // are written by then in any case. May call anything here but AddressOf; must not wait long.
  using Ended = std::function<void(const absl::Status&)>;
  // `fill` sets all but the id of a command that is all zeros; it is called under a lock. Gives the
  // id. RESOURCE_EXHAUSTED: as many are under way as may be. UNAVAILABLE: `incarnation` is gone.
  // `ended` is not called then.
  absl::StatusOr<uint64_t> Submit(uint64_t incarnation, absl::FunctionRef<void(gpu::Command&)> fill,
                                  Ended ended);
  // The command ends soon (see CommandKind::kCancel), or has ended. Never waits.
  void Cancel(uint64_t id);

  // A batch of the present process, or an empty one: then `when_free`, unless null, is called once,
  // when there may be one (or the process is another), on any thread.
  RunBatch TakeBatch(std::function<void()> when_free);

  GpuView View() const;

 private:
  friend class GpuWorkers;
  friend struct DeviceRegion;
  struct State;
  // Of a region that nobody uses any more.
  void Forget(uint64_t id);
  explicit GpuWorker(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;
};

// All GPUs that this daemon serves.
class GpuWorkers {
 public:
  struct Options {
    GpuChoice choice;
    // Of a process: how often it is looked at while it has work, and after how many looks without
    // a turn of its loop it is replaced.
    std::chrono::nanoseconds look = std::chrono::milliseconds(500);
    int silent_looks = 10;
    // Between deaths, doubled each time; the first replacement comes at once.
    std::chrono::nanoseconds backoff = std::chrono::milliseconds(100);
    std::chrono::nanoseconds backoff_max = std::chrono::seconds(5);
    // Deaths without a minute of life between them; then the GPU is given up.
    int deaths_max = 8;
  };
  // Never fails for want of a GPU. Finding out what there is takes a process of its own, a second
  // at worst, and is not awaited.
  static absl::StatusOr<std::unique_ptr<GpuWorkers>> Start(Options options);
  ~GpuWorkers();

  // Calls once what GPUs there are is known, at once if it is; perhaps on the loop's thread.
  void WhenListed(std::function<void()> closure);
  // UNIMPLEMENTED, in words, if this daemon does not serve it (or does not know yet).
  absl::StatusOr<std::shared_ptr<GpuWorker>> Find(const gpu::Uuid& uuid) const;
  std::vector<std::shared_ptr<GpuWorker>> List() const;

  // Ends the processes; what is under way ends UNAVAILABLE. Nothing is called back afterwards.
  void Stop();

 private:
  struct Impl;
  explicit GpuWorkers(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shunt::daemon
