// Modules, and the kernels on the CPU.
#include <cuda.h>

#include <atomic>
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/collectives/exec/reduce.h"
#include "runtime/core/types.h"
#include "runtime/gpu/kernels/params.h"
#include "runtime/gpu/worker/protocol.h"
#include "tests/gpu/fake_cuda/memory.h"
#include "tests/gpu/fake_cuda/state.h"
#include "tests/gpu/fake_cuda/stream.h"

namespace shunt::fake_cuda {
namespace {

using gpu::MoveParams;
using gpu::ReduceParams;
using gpu::Run;
using gpu::Signals;

struct FakeModule {};

std::set<void*>& Modules() {
  static auto* const modules = new std::set<void*>;
  return *modules;
}

template <typename T>
void Publish(T* word, T value) {
  std::atomic_ref<T>(*word).store(value, std::memory_order_release);
}

// False: an address that the device cannot reach, which loses the context.
bool Signal(const Signals& signals) {
  if (signals.count > gpu::kRanksMax) return false;
  for (uint32_t i = 0; i < signals.count; ++i) {
    if (!Reachable(reinterpret_cast<uint64_t>(signals.word[i]), sizeof(uint32_t))) return false;
    Publish(signals.word[i], signals.value + signals.values[i]);
  }
  if (signals.completion == nullptr) return true;
  if (!Reachable(reinterpret_cast<uint64_t>(signals.completion), sizeof(uint64_t))) return false;
  Publish(signals.completion, signals.completion_value);
  return true;
}

bool Reduce(const ReduceParams& params) {
  if (params.sources == 0 || params.sources > gpu::kRanksMax || params.destinations == 0 ||
      params.destinations > gpu::kRanksMax) {
    return false;
  }
  const ReduceSpec spec{static_cast<DataType>(params.dtype), static_cast<Redop>(params.redop),
                        static_cast<int>(params.divisor), StorePolicy::kTemporal};
  const uint64_t bytes = params.count * SizeOf(spec.dtype);
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  std::vector<Scalar> scalars(params.sources);
  for (int i = 0; i < params.sources; ++i) {
    if (!Reachable(params.source[i], bytes)) return false;
    sources.push_back(reinterpret_cast<const std::byte*>(params.source[i]));
    std::memcpy(scalars[static_cast<size_t>(i)].bytes, &params.scalar[i], sizeof(Scalar));
  }
  for (int i = 0; i < params.destinations; ++i) {
    if (!Reachable(params.destination[i], bytes)) return false;
    destinations.push_back(reinterpret_cast<std::byte*>(params.destination[i]));
  }
  if (params.count > 0)
    ReduceInto(spec, sources, scalars, absl::MakeConstSpan(destinations), params.count);
  return Signal(params.signals);
}

bool Move(const MoveParams& params) {
  const auto* const runs = static_cast<const Run*>(params.run);
  if (!Reachable(reinterpret_cast<uint64_t>(runs), params.runs * sizeof(Run))) return false;
  for (uint32_t i = 0; i < params.runs; ++i) {
    const Run& run = runs[i];
    if (!Reachable(run.source, run.bytes) || !Reachable(run.destination, run.bytes)) return false;
    std::memmove(reinterpret_cast<void*>(run.destination),
                 reinterpret_cast<const void*>(run.source), run.bytes);
  }
  return Signal(params.signals);
}

struct Kernel {
  const char* name;
  size_t parameter_bytes;
  bool (*run)(const void* parameters);
};

const Kernel kKernels[] = {
    {"shunt_reduce", sizeof(ReduceParams),
     [](const void* p) { return Reduce(*static_cast<const ReduceParams*>(p)); }},
    {"shunt_move", sizeof(MoveParams),
     [](const void* p) { return Move(*static_cast<const MoveParams*>(p)); }},
    {"shunt_signal", sizeof(Signals),
     [](const void* p) { return Signal(*static_cast<const Signals*>(p)); }},
};

}  // namespace
}  // namespace shunt::fake_cuda

using namespace shunt::fake_cuda;

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  FAKE_ENTER(cuModuleLoadData, kUncaptured);
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* const made = new FakeModule;
  const std::lock_guard lock(Lock());
  Modules().insert(made);
  *module = reinterpret_cast<CUmodule>(made);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  FAKE_ENTER(cuModuleUnload, kContext);
  const std::lock_guard lock(Lock());
  if (Modules().erase(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete reinterpret_cast<FakeModule*>(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  FAKE_ENTER(cuModuleGetFunction, kContext);
  const std::lock_guard lock(Lock());
  if (Modules().count(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  for (const Kernel& kernel : kKernels) {
    if (std::string_view(name) == kernel.name) {
      *function = reinterpret_cast<CUfunction>(const_cast<Kernel*>(&kernel));
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction /*function*/) {
  FAKE_ENTER(cuFuncGetAttribute, kContext);
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int blocks_x, unsigned int blocks_y,
                        unsigned int blocks_z, unsigned int threads_x, unsigned int threads_y,
                        unsigned int threads_z, unsigned int /*shared_bytes*/, CUstream raw,
                        void** parameters, void** extra) {
  FAKE_ENTER(cuLaunchKernel, kContext);
  const auto* const kernel = reinterpret_cast<const Kernel*>(function);
  const uint64_t threads = uint64_t{threads_x} * threads_y * threads_z;
  if (kernel < std::begin(kKernels) || kernel >= std::end(kKernels))
    return CUDA_ERROR_INVALID_HANDLE;
  if (blocks_x == 0 || blocks_y == 0 || blocks_z == 0 || blocks_y > 65535 || threads == 0 ||
      threads > 1024 || parameters == nullptr || extra != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto* const bytes = static_cast<const std::byte*>(parameters[0]);
  // As 64-bit words: the structs' alignment.
  std::vector<uint64_t> copy((kernel->parameter_bytes + 7) / 8);
  std::memcpy(copy.data(), bytes, kernel->parameter_bytes);
  return static_cast<CUresult>(Submit(stream, [kernel, copy = std::move(copy)](uint64_t*) {
    if (!kernel->run(copy.data())) Lose(CUDA_ERROR_ILLEGAL_ADDRESS);
    return true;
  }));
}
