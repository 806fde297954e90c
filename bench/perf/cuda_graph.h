// CUDA graphs for measurements: what Shunt itself never makes.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "runtime/gpu/driver.h"

namespace shunt::bench {

// One graph that can be launched again and again. Single-threaded.
class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() { Drop(); }

  // Captures what `enqueue` puts on the stream, in the place of what was captured before.
  absl::Status Capture(gpu::Stream stream, const std::function<absl::Status()>& enqueue);
  absl::Status Launch(gpu::Stream stream);
  void Drop();

 private:
  void* run_ = nullptr;  // CUgraphExec
};

}  // namespace shunt::bench
