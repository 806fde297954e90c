// The kernels, loaded into one context. They are built once into a fat binary that this library
// carries; all of them are loaded at once, before anything waits (a lazy load behind a pending wait
// deadlocks).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu {

// Thread-compatible. The context that was current at Load is current at every call.
class Kernels {
 public:
  // UNIMPLEMENTED where the build had no CUDA toolkit. FAILED_PRECONDITION: the GPU is older than
  // what the kernels were built for.
  static absl::StatusOr<std::unique_ptr<Kernels>> Load(Driver* driver, const DeviceFacts& device);
  ~Kernels();

  // Enqueue on `stream`. INVALID_ARGUMENT for counts that the structs cannot hold.
  absl::Status Reduce(const ReduceParams& params, Stream stream);
  absl::Status Spread(const SpreadParams& params, Stream stream);
  absl::Status Move(const MoveParams& params, Stream stream);
  // Signals alone.
  absl::Status Signal(const Signals& signals, Stream stream);

 private:
  Kernels(Driver* driver, Module module, int multiprocessors);
  Driver* const driver_;
  const Module module_;
  const int multiprocessors_;
  Function reduce_ = nullptr, move_ = nullptr, signal_ = nullptr;
};

}  // namespace shunt::gpu
