// Operations on GPU memory, on their way to the workers: holds what they name, finds where it lies
// in the worker that executes them, fills commands.
//
//   Begin ── all imported? ──► Submit ──► worker ──► ended
//              └─ no: a helper thread imports ──► again()
//
// Nothing here waits for a worker but the helper threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/gpu/device_regions.h"
#include "daemon/gpu/workers.h"
#include "runtime/board/layout.h"
#include "runtime/collectives/exec/reduce.h"
#include "runtime/collectives/plan/local_plan.h"
#include "runtime/memory/region_table.h"
#include "runtime/p2p/work_pool.h"

namespace shunt::daemon {

// A region that an operation names, and that stays while this lives: of a GPU, or of the host.
struct GpuMemory {
  DeviceUse device;
  std::shared_ptr<memory::Region> host;

  bool on_gpu() const { return device.region != nullptr; }
  uint64_t id() const { return on_gpu() ? device.region->id : host->id(); }
  absl::Status CheckRange(uint64_t offset, uint64_t length) const {
    return on_gpu() ? device.region->CheckRange(offset, length) : host->CheckRange(offset, length);
  }
};

// Thread-safe.
class GpuEngine {
 public:
  // All outlive it.
  GpuEngine(GpuWorkers* workers, DeviceRegions* devices, memory::RegionTable* regions)
      : workers_(workers), devices_(devices), regions_(regions) {}
  ~GpuEngine() { Stop(); }

  // UNIMPLEMENTED, in words, if this daemon serves no GPU.
  absl::Status CheckServes() const;
  void WhenListed(std::function<void()> closure) { workers_->WhenListed(std::move(closure)); }

  // A session's region of either kind; NOT_FOUND. `words` name the operation that holds it.
  absl::StatusOr<GpuMemory> Hold(uint64_t session, uint64_t region, const std::string& words) const;

  // ---- Collectives

  struct Side {
    int memory = -1;  // an index; -1: none
    uint64_t offset = 0;
  };
  struct Gate {
    int memory = -1;
    uint64_t offset = 0;  // of GateWords
    uint32_t generation = 0;
  };
  struct Rank {
    Side in, out;
    Scalar scalar{};
    Gate gate;
  };
  // Belongs to who makes it until Begin, then to the engine.
  struct Call {
    CollectiveSpec spec{};
    bool repeats = false;
    uint64_t lane = 0;
    // Executes it if no rank's memory is a GPU's; null: whichever there is.
    std::shared_ptr<GpuWorker> home;
    absl::InlinedVector<GpuMemory, 8> memory;  // until the end
    absl::InlinedVector<Rank, 4> ranks;
    std::vector<board::VRow> tables;  // all_to_all_v: a row for each pair of ranks
    GpuWorker::Ended ended;           // on the workers' completion thread, once

    bool gated() const;

    // The engine's.
    RunBatch batch;
    absl::Status failed;  // an import
  };
  struct Ticket {
    std::shared_ptr<GpuWorker> worker;
    uint64_t id = 0;  // 0: not begun
  };
  // Hands the call to its worker. If something has to come first (an import, room in the ring) the
  // ticket is empty and `again` is called once, on another thread, when another try is worth it.
  // UNAVAILABLE: there is no worker for it; errors of imports; UNIMPLEMENTED: too many pieces of an
  // all_to_all_v. `ended` is not called in any of these cases.
  absl::StatusOr<Ticket> Begin(const std::shared_ptr<Call>& call, std::function<void()> again);
  static void Cancel(const Ticket& ticket) {
    if (ticket.id != 0) ticket.worker->Cancel(ticket.id);
  }

  // ---- For other commands

  // Who moves between such regions.
  absl::StatusOr<std::shared_ptr<GpuWorker>> WorkerFor(absl::Span<const GpuMemory> memory) const;
  struct Addresses {
    uint64_t incarnation = 0;
    absl::InlinedVector<HostAddress, 16> at;  // of each region
  };
  // False if some of it has to be imported first.
  bool Locate(GpuWorker& worker, absl::Span<const GpuMemory> memory, Addresses* addresses);
  // On a helper thread. `done` is called there, once.
  void Import(std::shared_ptr<GpuWorker> worker, std::vector<GpuMemory> memory,
              std::function<void(const absl::Status&)> done);
  // As GpuWorker::Submit. If RESOURCE_EXHAUSTED, `again` is called once there may be room.
  absl::StatusOr<uint64_t> Submit(GpuWorker& worker, uint64_t incarnation,
                                  absl::FunctionRef<void(gpu::Command&)> fill,
                                  GpuWorker::Ended ended, const std::function<void()>& again);
  // The addresses of a process that is gone are forgotten.
  void Forget(const GpuWorker& worker, uint64_t incarnation);

  // Nothing is imported any more.
  void Stop() { helpers_.Stop(); }

 private:
  struct Known {
    uint64_t incarnation = 0;
    HostAddress at;
    std::weak_ptr<void> region;
  };
  using Key = std::pair<const GpuWorker*, uint64_t>;

  absl::Status FillRuns(Call& call, const Addresses& addresses, uint32_t* runs) const;
  void CommandEnded();
  void Remember(const GpuWorker& worker, uint64_t incarnation, const GpuMemory& memory,
                const HostAddress& at);

  GpuWorkers* const workers_;
  DeviceRegions* const devices_;
  memory::RegionTable* const regions_;

  std::mutex mutex_;
  absl::flat_hash_map<Key, Known> known_;
  size_t sweep_at_ = 1024;  // entries
  std::atomic<uint64_t> ended_ = 0;
  std::atomic<bool> someone_waits_ = false;
  std::vector<std::function<void()>> waiting_;  // for room

  // A worker that does not answer holds up one.
  p2p::WorkPool helpers_{{.threads = 2}};
};

}  // namespace shunt::daemon
