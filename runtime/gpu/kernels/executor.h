// The worker's executor on a GPU: commands as kernels, on streams of its own.
//
//   lane 0       round-robin over a few streams: batches of a transfer overlap, so that the copy of
//                one's table to the GPU is hidden behind the kernel of another
//   other lanes  each lane on one stream of others: no collective queues behind a transfer
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/worker/worker.h"

namespace shunt::gpu {

// In the context that is current, now and at every later call, on one thread. The driver outlives
// it. Loads all kernels and takes 6 MiB of the GPU for tables of runs; waits for the GPU here, and
// later only where a launch fails, until what came before it in its command is done.
//
// UNIMPLEMENTED, FAILED_PRECONDITION: as Kernels::Load.
absl::StatusOr<std::unique_ptr<Executor>> MakeKernelExecutor(Driver* driver,
                                                             const DeviceFacts& device);

}  // namespace shunt::gpu
