// One GPU for measurements: its context, memory that is freed at the end, a stream, and the time
// of what is enqueued there. Single-threaded; failures end the program with words.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gpu/driver.h"

namespace shunt::bench {

class Device {
 public:
  // UNAVAILABLE without a driver or a GPU.
  static absl::StatusOr<std::unique_ptr<Device>> Open(int ordinal);
  ~Device();

  gpu::Driver& driver() { return *driver_; }
  const gpu::DeviceFacts& facts() const { return facts_; }
  gpu::Stream stream() const { return stream_; }

  // Zeroed.
  absl::StatusOr<gpu::DevicePtr> Allocate(uint64_t bytes);
  // Pinned, zeroed; as the CPU sees it and as kernels do.
  struct Pinned {
    std::byte* host;
    gpu::DevicePtr device;
  };
  absl::StatusOr<Pinned> AllocatePinned(uint64_t bytes);
  void FreeAll();

  // Microseconds of what `enqueue` puts on the stream: the median of `blocks` blocks, by events,
  // each about `block_us` long. Warms up first.
  absl::StatusOr<double> TimeUs(const std::function<absl::Status()>& enqueue, int blocks = 5,
                                double block_us = 10'000);

 private:
  Device() = default;
  absl::StatusOr<double> BlockUs(const std::function<absl::Status()>& enqueue, int64_t rounds);

  gpu::Driver* driver_ = nullptr;
  gpu::DeviceFacts facts_;
  gpu::Context context_ = nullptr;
  gpu::Stream stream_ = nullptr;
  gpu::Event begin_ = nullptr, end_ = nullptr;
  std::vector<gpu::DevicePtr> memory_;
  std::vector<std::pair<std::byte*, uint64_t>> pinned_;
};

}  // namespace shunt::bench
