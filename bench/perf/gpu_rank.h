// The GPU of a rank's process: its context, a stream, and the time of what is enqueued there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/cuda_graph.h"
#include "runtime/gpu/driver.h"

namespace shunt::bench {

// Single-threaded; made in the rank's process, for CUDA does not outlive a fork.
class GpuRank {
 public:
  // The rank-th GPU, over and over. UNAVAILABLE without a driver or a GPU.
  static absl::StatusOr<std::unique_ptr<GpuRank>> Open(int rank);
  ~GpuRank();
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  int device() const { return device_; }
  gpu::Stream stream() const { return stream_; }

  // Either side may lie on the host. Waits for it.
  absl::Status Copy(void* destination, const void* source, uint64_t bytes);

  // Nanoseconds that the stream needs for `iterations` times `enqueue`, by events. `graph_calls`
  // not 0: for as many replays of a graph of so many as that takes, at least one; the time is that
  // of `iterations` all the same. `after_us`: the stream is kept busy for about so long first, in
  // which the CPU enqueues ahead.
  struct Timing {
    int64_t graph_calls = 0;
    double after_us = 0;
  };
  absl::StatusOr<int64_t> TimeNs(int64_t iterations, const Timing& timing,
                                 const std::function<absl::Status()>& enqueue);
  // The call that a graph was captured of has changed.
  void DropGraph();

 private:
  GpuRank() = default;
  absl::Status KeepBusy(double us);

  gpu::Driver* driver_ = nullptr;
  int device_ = 0;
  gpu::Context context_ = nullptr;
  gpu::Stream stream_ = nullptr;
  gpu::Event begin_ = nullptr, end_ = nullptr;
  gpu::DevicePtr scratch_ = 0;
  double fill_us_ = 0;  // of all of scratch_
  CudaGraph graph_;
  bool captured_ = false;
};

}  // namespace shunt::bench
