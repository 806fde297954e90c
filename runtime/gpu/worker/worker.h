// The worker: one thread, one GPU. It answers the control socket, arms the commands that come over
// the ring, looks at their gates, launches, and sees their ends. Its loop spins for a while after
// work, then sleeps until a doorbell; with armed gates it looks again at short intervals.
#pragma once

#include <cstdint>
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
  // Enqueues all of a collective, or of a batch; `completion`, in host memory, gets
  // `completion_value` at its end, after the gates' done words. Must not wait.
  virtual absl::Status Begin(const Command& command, const Run* runs, uint64_t* completion,
                             uint64_t completion_value) = 0;
  // The context is lost (DATA_LOSS), or OK.
  virtual absl::Status Health() = 0;
};

struct WorkerOptions {
  int device = 0;                     // as the driver counts
  int64_t spin_ns = 50'000;           // after the last work
  int64_t armed_spin_ns = 2'000'000;  // while a gate is awaited
  int64_t armed_sleep_ns = 20'000;    // then between looks
};

// shuntd's descriptors, as the worker's command line names them.
struct WorkerFds {
  UniqueFd control;
  UniqueFd ring;             // memfd of sizeof(Ring)
  UniqueFd worker_doorbell;  // rung by shuntd
  UniqueFd shuntd_doorbell;
};

// Runs until the control socket closes (OK) or the context is lost (DATA_LOSS).
absl::Status RunWorker(Driver* driver, const WorkerOptions& options, WorkerFds fds);

}  // namespace shunt::gpu
