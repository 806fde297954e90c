#include "bench/perf/cuda_graph.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

#define SHUNT_TEXT_OF(name) #name
#define SHUNT_TEXT(name) SHUNT_TEXT_OF(name)
// A function of the driver that gpu::Driver has loaded, under the name that the header gives it.
#define SHUNT_CALL(name, ...) \
  Check(reinterpret_cast<decltype(&::name)>(Find(SHUNT_TEXT(name))), #name, __VA_ARGS__)

namespace shunt::bench {
namespace {

void* Find(const char* name) {
  static void* const library = [] {
    const char* const named = std::getenv("SHUNT_CUDA_LIBRARY");
    return ::dlopen(named != nullptr && *named != '\0' ? named : "libcuda.so.1", RTLD_NOW);
  }();
  return library == nullptr ? nullptr : ::dlsym(library, name);
}

template <typename Function, typename... Arguments>
absl::Status Check(Function function, const char* name, Arguments... arguments) {
  if (function == nullptr) return absl::UnavailableError(absl::StrCat("no ", name, " in CUDA"));
  const CUresult result = function(arguments...);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(name, ": error ", static_cast<int>(result), " of CUDA"));
}

CUstream Raw(gpu::Stream stream) { return reinterpret_cast<CUstream>(stream); }

}  // namespace

absl::Status CudaGraph::Capture(gpu::Stream stream, const std::function<absl::Status()>& enqueue) {
  Drop();
  SHUNT_RETURN_IF_ERROR(
      SHUNT_CALL(cuStreamBeginCapture, Raw(stream), CU_STREAM_CAPTURE_MODE_GLOBAL));
  const absl::Status enqueued = enqueue();
  CUgraph graph = nullptr;
  const absl::Status ended = SHUNT_CALL(cuStreamEndCapture, Raw(stream), &graph);
  SHUNT_RETURN_IF_ERROR(enqueued);
  SHUNT_RETURN_IF_ERROR(ended);
  CUgraphExec run = nullptr;
  const absl::Status made = SHUNT_CALL(cuGraphInstantiateWithFlags, &run, graph, 0ull);
  (void)SHUNT_CALL(cuGraphDestroy, graph);
  run_ = run;
  return made;
}

absl::Status CudaGraph::Launch(gpu::Stream stream) {
  return SHUNT_CALL(cuGraphLaunch, static_cast<CUgraphExec>(run_), Raw(stream));
}

void CudaGraph::Drop() {
  if (run_ != nullptr) (void)SHUNT_CALL(cuGraphExecDestroy, static_cast<CUgraphExec>(run_));
  run_ = nullptr;
}

}  // namespace shunt::bench
