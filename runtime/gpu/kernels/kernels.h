// The kernels, loaded into one context. They are built once into fat binaries that this library
// carries; all of them are loaded at once, before anything waits (a lazy load behind a pending wait
// deadlocks).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/kernels/params.h"

namespace shunt::gpu {

// How operations are cut; small ones more finely.
struct Cut {
  uint32_t reduce_threads = 128;  // of a block: 32 to 256, whole warps
  uint32_t reduce_steps = 1;      // that a thread takes, of as many loads as it has in flight
  uint32_t copy_threads = 64;     // likewise
  uint32_t copy_part = 4096;      // bytes that a block copies: a multiple of 512
  uint32_t warp_part = 2048;      // runs up to so many bytes are a warp's
  // Of a multiprocessor; the signals of a grid of more are a launch of their own.
  uint32_t signal_blocks = 16;
  // A reduction that one block does in so many steps is one block's: it needs no ticket.
  uint32_t alone_steps = 2;
  bool large_forms = false;  // also of few ranks and runs
};

// Thread-compatible. The context that was current at Load is current at every call.
class Kernels {
 public:
  // UNIMPLEMENTED where the build had no CUDA toolkit. FAILED_PRECONDITION: the GPU is older than
  // what the kernels were built for. Waits for the GPU.
  static absl::StatusOr<std::unique_ptr<Kernels>> Load(Driver* driver, const DeviceFacts& device);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Enqueue on `stream`, in one launch or two. INVALID_ARGUMENT, before any: counts that the
  // structs cannot hold. After an error of the driver's a part may be under way, but no signal.
  absl::Status Reduce(const ReduceParams& params, Stream stream);
  absl::Status Spread(const SpreadParams& params, Stream stream);
  absl::Status Move(const MoveParams& params, Stream stream);
  // Signals alone.
  absl::Status Signal(const Signals& signals, Stream stream);

  // For measurements; the default is what they found best.
  void set_cut(const Cut& cut) { cut_ = cut; }

 private:
  static constexpr int kTypes = 12;
  static constexpr int kForms = 4;  // any number of sources; sums of 2, 4, 8

  // By the parameters that it takes.
  struct Kernel {
    Function small = nullptr, large = nullptr;
  };

  Kernels(Driver* driver, int multiprocessors);
  absl::Status LoadAll();
  absl::Status RunEach();
  template <class Params>
  bool IsSmall(const Params& params) const;
  template <class Params>
  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const Params& params,
                      Stream stream);
  template <class Params>
  absl::Status LaunchAndSignal(const Kernel& kernel, const LaunchShape& shape, const Params& params,
                               Stream stream);
  absl::Status ReduceAsCopy(const ReduceParams& params, Stream stream);
  LaunchShape ReduceShape(const ReduceParams& params, uint32_t vectors) const;

  Driver* const driver_;
  const uint32_t multiprocessors_;
  Cut cut_;
  std::vector<Module> modules_;
  Kernel reduce_[kTypes][kForms];  // null: that type has no such form, or only a small one
  Kernel spread_, move_, move_host_, signal_;
};

}  // namespace shunt::gpu
