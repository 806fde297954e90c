// What calls into the driver need of the calling thread: a current CUDA context, and leave to be
// made while a stream is captured.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// While this lives, a capture under way in this process forbids the thread no call: what it makes
// for Shunt has no place in any graph.
class CaptureLeave {
 public:
  explicit CaptureLeave(gpu::Driver* driver)
      : driver_(driver), before_(driver->SetCaptureMode(gpu::Driver::kCaptureRelaxed)) {}
  ~CaptureLeave() {
    if (before_.ok()) (void)driver_->SetCaptureMode(*before_);
  }
  CaptureLeave(const CaptureLeave&) = delete;
  CaptureLeave& operator=(const CaptureLeave&) = delete;

 private:
  gpu::Driver* const driver_;
  const absl::StatusOr<int> before_;
};

}  // namespace shunt::client::cuda
