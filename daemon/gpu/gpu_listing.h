// Which GPUs there are, as `shunt-gpu-worker --list` says, and which of them the daemon serves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/worker/listing.h"

namespace shunt::daemon {

struct GpuListing {
  int ordinal = 0;  // as the driver counts in a process with this one's environment
  gpu::Uuid uuid{};
  std::string name;  // "NVIDIA H200"
  std::string pci;
  uint64_t bytes = 0;
};

// The section [gpu] of the configuration.
struct GpuChoice {
  enum class Enabled { kAuto, kOn, kOff };  // auto: where there is a driver
  Enabled enabled = Enabled::kAuto;
  // As device_names.h has them.
  std::vector<std::string> devices = {"all"};
  std::string worker;    // the program; "": shunt-gpu-worker beside this one's
  bool use_mps = false;  // as clients of MPS, where it runs
};

// What `shuntctl status` shows.
struct GpuView {
  GpuListing gpu;
  std::string state;  // "idle", "starting", "ready", "restarting" or "given up"
  std::string why;    // of the last two
  int32_t pid = 0;    // 0: no process
  uint64_t restarts = 0;
  uint64_t regions = 0;  // of GPU memory
  uint64_t region_bytes = 0;
  uint64_t commands = 0;  // under way
};

// Of lines as gpu::ListingLine writes.
absl::StatusOr<std::vector<GpuListing>> ParseListing(std::string_view text);

// Those of `found` that `devices` (device_names.h) names. NOT_FOUND names one that there is not.
absl::StatusOr<std::vector<GpuListing>> Choose(const std::vector<GpuListing>& found,
                                               const std::vector<std::string>& devices);

}  // namespace shunt::daemon
