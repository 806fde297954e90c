// Whether this process uses CUDA, without loading it for those that do not.
#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "runtime/gpu/driver.h"

namespace shunt::client::cuda {

namespace internal {
extern std::atomic<bool> in_process;
}  // namespace internal

// The driver, loaded on the first call. UNAVAILABLE says why there is none.
absl::StatusOr<gpu::Driver*> LoadDriver();

// Looks whether the program has loaded the driver by itself meanwhile; some microseconds.
void LookForDriver();

// False as long as nobody is known to have loaded the driver: no address can be a GPU's then. A
// load.
inline bool InProcess() { return internal::in_process.load(std::memory_order_relaxed); }

}  // namespace shunt::client::cuda
