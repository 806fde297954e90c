// The worker: one thread, one GPU. It answers the control socket, arms the commands that come over
// the ring, looks at their gates, launches, and sees their ends. Its loop spins for a while after
// work, then sleeps until a doorbell; with armed gates it looks again at short intervals.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/worker/protocol.h"

namespace shunt::gpu {

// What launches. Kernels behind it; in tests, the CPU.
class Executor {
 public:
  virtual ~Executor() = default;
  // Enqueues all of a collective, or of a batch; `completion`, in host memory but as kernels reach
  // it, gets `completion_value` at its end, after the gates' done words. Must not wait. On an error
  // nobody writes any of these words.
  virtual absl::Status Begin(const Command& command, const Run* runs, uint64_t* completion,
                             uint64_t completion_value) = 0;
  // The context is lost (DATA_LOSS), or OK.
  virtual absl::Status Health() = 0;
};

struct WorkerOptions {
  int device = 0;                     // as the driver counts
  Uuid uuid{};                        // what that must be; zeros: anything
  int64_t spin_ns = 50'000;           // after the last work
  int64_t armed_spin_ns = 2'000'000;  // while a gate is awaited
  int64_t armed_sleep_ns = 20'000;    // then between looks
  int64_t health_ns = 1'000'000;      // between looks at the context, while something runs
};

// shuntd's descriptors, as the worker's command line names them.
struct WorkerFds {
  UniqueFd control;
  UniqueFd ring;             // memfd of sizeof(Ring)
  UniqueFd worker_doorbell;  // rung by shuntd
  UniqueFd shuntd_doorbell;
};

// Makes what launches, in the device's context, which is current.
using MakeExecutor =
    std::function<absl::StatusOr<std::unique_ptr<Executor>>(Driver* driver, const DeviceFacts&)>;

// Runs until the control socket closes (OK) or the context is lost (DATA_LOSS); then nothing of it
// is cleaned up, and the process should end. Whatever can be loaded is loaded before the first
// request is looked at.
absl::Status RunWorker(Driver* driver, const WorkerOptions& options, WorkerFds fds,
                       const MakeExecutor& make);

}  // namespace shunt::gpu
