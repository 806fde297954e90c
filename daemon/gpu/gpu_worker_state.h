// What a GpuWorker is made of: the process that serves the GPU now, the memory that it has, the
// requests on their way to it. gpu_worker.cc has what others ask for, gpu_worker_life.cc the
// process's start, death and replacement.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/event_loop.h"
#include "daemon/gpu/gpu_completions.h"
#include "daemon/gpu/worker_link.h"
#include "daemon/gpu/worker_process.h"
#include "daemon/gpu/workers.h"
#include "runtime/gpu/worker/protocol.h"

namespace shunt::daemon {

struct GpuWorker::State : std::enable_shared_from_this<GpuWorker::State> {
  enum class Phase : uint8_t { kIdle, kStarting, kReady, kRestarting, kGivenUp, kStopped };
  using Replied = std::function<void(const absl::StatusOr<gpu::Reply>&)>;

  // Memory that the worker has, or is to have. Whose memory it is takes itself out of the table
  // when it goes, under the mutex: the pointer is good as long as the entry is there.
  struct Memory {
    const DeviceRegion* device = nullptr;
    memory::Region* host = nullptr;
    std::weak_ptr<memory::Region> weak_host;
    enum class At : uint8_t { kNowhere, kAsked, kThere } at = At::kNowhere;
    uint64_t asked = 0;    // the request's number
    uint64_t address = 0;  // as kernels see it
    uint64_t host_address = 0;
    int deaths = 0;  // of workers that were opening it
    std::vector<std::function<void(const absl::Status&)>> waiters;
  };
  struct Call {
    gpu::Request request;
    Replied replied;
  };

  State(GpuWorkers::Options options, GpuListing gpu, std::shared_ptr<EventLoop> loop,
        GpuCompletions* completions);

  // ---- gpu_worker.cc; any thread
  static Memory Of(const DeviceRegion& region);
  // Imports what `make` makes an entry for, unless it is there; then `done`, perhaps at once.
  void Import(uint64_t id, const std::function<Memory()>& make,
              std::function<void(const absl::Status&)> done);
  void Forget(uint64_t id);
  // mutex held.
  void AskLocked(uint64_t id, Memory* memory);
  void SendLocked(Call call);
  void FlushLocked();
  absl::Status WhyNotLocked() const;
  void OnImported(uint64_t id, uint64_t asked, const absl::StatusOr<gpu::Reply>& reply);

  // ---- gpu_worker_life.cc; on the loop's thread
  void StartProcess();
  absl::Status TryStart();
  void OnReply();
  void OnProcessEnd(const std::string& how);
  void OnDeath(std::string cause);
  // Who waits for memory hears of it.
  void GiveUp(Phase phase, const absl::Status& why);
  void Look();
  void Stop();
  // Any thread: the process is looked at from now on, as long as it has work.
  void KeepLooking();
  absl::Status Died() const;  // mutex held

  const GpuWorkers::Options options;
  const GpuListing gpu;
  const std::string label;
  const std::shared_ptr<EventLoop> loop;
  GpuCompletions* const completions;

  mutable std::mutex mutex;
  Phase phase = Phase::kIdle;
  std::string why;  // kRestarting, kGivenUp: the last death
  uint64_t incarnation = 0;
  uint64_t restarts = 0;
  int deaths = 0;  // in a row
  int64_t ready_ns = 0;
  int32_t pid = 0;
  std::shared_ptr<WorkerLink> link;
  std::vector<std::function<void()>> batch_waiters;  // while no process runs
  std::unordered_map<uint64_t, Memory> memory;       // by region
  uint64_t next_request = 1;
  std::deque<Call> waiting;  // to be sent
  std::deque<Call> sent;     // to be answered, in this order
  UniqueFd control;
  bool looking = false;

  // The loop's.
  std::unique_ptr<WorkerProcess> process;
  EventLoop::WatchId control_watch = 0;
  std::string kill_cause;
  uint64_t seen_turns = 0;
  int silent = 0;
  int64_t lost_ns = 0;  // when its context was seen to be lost; 0: it is not
};

}  // namespace shunt::daemon
