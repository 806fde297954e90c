// A current CUDA context for calls into the driver that need one.
#pragma once

#include "absl/status/status.h"
#include "runtime/gpu/driver.h"

namespace shunt::client::cuda {

// The calling thread's context stays what it is. Of a thread that has none, the device's primary
// one is current while this lives: memory of the device, which this process has, lies in it.
// Nothing here makes a context that the process does not use already, unless `device` was never
// used.
class ContextScope {
 public:
  ContextScope(gpu::Driver* driver, int device) : driver_(driver), device_(device) {
    auto current = driver->Current();
    if (!current.ok()) {
      status_ = current.status();
      return;
    }
    if (*current != nullptr) return;
    auto primary = driver->RetainPrimary(device);
    if (!primary.ok()) {
      status_ = primary.status();
      return;
    }
    retained_ = true;
    status_ = driver->SetCurrent(*primary);
  }
  ~ContextScope() {
    if (!retained_) return;
    (void)driver_->SetCurrent(nullptr);
    driver_->ReleasePrimary(device_);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  gpu::Driver* const driver_;
  const int device_;
  bool retained_ = false;
  absl::Status status_;
};

}  // namespace shunt::client::cuda
