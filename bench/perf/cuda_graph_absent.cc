// Where the build had no CUDA header.
#include "bench/perf/cuda_graph.h"

namespace shunt::bench {

absl::Status CudaGraph::Capture(gpu::Stream, const std::function<absl::Status()>&) {
  return absl::UnimplementedError("this was built without the CUDA toolkit: no graphs");
}
absl::Status CudaGraph::Launch(gpu::Stream) { return absl::OkStatus(); }
void CudaGraph::Drop() {}

}  // namespace shunt::bench
