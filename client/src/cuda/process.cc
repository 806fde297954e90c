#include "client/src/cuda/process.h"

#include <dlfcn.h>

#include <cstdlib>

namespace shunt::client::cuda {

namespace internal {
std::atomic<bool> in_process{false};
}  // namespace internal

absl::StatusOr<gpu::Driver*> LoadDriver() {
  absl::StatusOr<gpu::Driver*> driver = gpu::Driver::Load();
  if (driver.ok()) internal::in_process.store(true, std::memory_order_relaxed);
  return driver;
}

void LookForDriver() {
  if (InProcess()) return;
  const char* const named = std::getenv("SHUNT_CUDA_LIBRARY");
  const char* const name = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
  void* const library = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return;
  ::dlclose(library);
  internal::in_process.store(true, std::memory_order_relaxed);
}

}  // namespace shunt::client::cuda
