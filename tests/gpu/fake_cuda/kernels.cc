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
#include "tests/gpu/fake_cuda/memory.h"
#include "tests/gpu/fake_cuda/state.h"
#include "tests/gpu/fake_cuda/stream.h"
#include "tests/gpu/kernels_on_cpu.h"

namespace shunt::fake_cuda {
namespace {

using gpu::Large;
using gpu::RunWords;
using gpu::Small;
using gpu::SpreadPattern;

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
template <class Form>
bool Run(const gpu::SignalsOf<Form>& signals, uint64_t blocks) {
  if (signals.count > Form::kRanks) return false;
  if (signals.count == 0 && signals.completion == nullptr) return true;
  if (blocks > 1) {
    if (!Reachable(reinterpret_cast<uint64_t>(signals.ticket), sizeof(uint32_t))) return false;
    // Blocks would count on from there, and none be the last.
    if (*signals.ticket != 0) return false;
  }
  for (uint32_t i = 0; i < signals.count; ++i) {
    if (!Reachable(reinterpret_cast<uint64_t>(signals.word[i]), sizeof(uint32_t))) return false;
    Publish(signals.word[i], signals.value + signals.values[i]);
  }
  if (signals.completion == nullptr) return true;
  if (!Reachable(reinterpret_cast<uint64_t>(signals.completion), sizeof(uint64_t))) return false;
  Publish(signals.completion, signals.completion_value);
  return true;
}

template <class Form>
bool Run(const gpu::ReduceParamsOf<Form>& params, uint64_t blocks) {
  if (params.count == 0) return Run(params.signals, blocks);
  if (params.sources == 0 || params.sources > Form::kRanks || params.destinations == 0 ||
      params.destinations > Form::kRanks) {
    return false;
  }
  const ReduceSpec spec{static_cast<DataType>(params.dtype), static_cast<Redop>(params.redop),
                        static_cast<int>(params.divisor), StorePolicy::kTemporal};
  const uint64_t bytes = params.count * SizeOf(spec.dtype);
  // A reduction that scatters is one for each destination.
  const uint64_t steps = params.scatter != 0 ? params.destinations : 1;
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  std::vector<Scalar> scalars(params.sources);
  for (int i = 0; i < params.sources; ++i) {
    if (!Reachable(params.source[i], steps * bytes)) return false;
    sources.push_back(reinterpret_cast<const std::byte*>(params.source[i]));
    std::memcpy(scalars[static_cast<size_t>(i)].bytes, &params.scalar[i], sizeof(Scalar));
  }
  for (int i = 0; i < params.destinations; ++i) {
    if (!Reachable(params.destination[i], bytes)) return false;
    destinations.push_back(reinterpret_cast<std::byte*>(params.destination[i]));
  }
  const auto all = absl::MakeConstSpan(destinations);
  for (uint64_t step = 0; step < steps; ++step) {
    ReduceInto(spec, sources, scalars, steps > 1 ? all.subspan(step, 1) : all, params.count);
    for (const std::byte*& source : sources) source += bytes;
  }
  return Run(params.signals, blocks);
}

template <class Form>
bool Run(const gpu::SpreadParamsOf<Form>& params, uint64_t blocks) {
  if (params.segments > Form::kRanks || params.destinations > Form::kRanks) return false;
  const bool pairs = params.pattern == SpreadPattern::kPairs;
  const bool each = params.pattern == SpreadPattern::kEach;
  const uint32_t destinations = each || pairs ? params.segments : params.destinations;
  const uint64_t gathered = each ? params.bytes : params.segments * params.bytes;
  for (uint32_t i = 0; i < params.segments; ++i) {
    if (!Reachable(params.source[i], pairs ? gathered : params.bytes)) return false;
  }
  for (uint32_t i = 0; i < destinations; ++i) {
    if (params.segments > 0 && !Reachable(params.destination[i], gathered)) return false;
  }
  gpu::testing::SpreadOnCpu(params);
  return Run(params.signals, blocks);
}

template <class Form>
bool Run(const gpu::MoveParamsOf<Form>& params, uint64_t blocks) {
  const RunWords* const runs = params.run != nullptr ? params.run : params.few;
  if (params.run == nullptr
          ? params.runs > Form::kRuns
          : !Reachable(reinterpret_cast<uint64_t>(runs), params.runs * sizeof(RunWords))) {
    return false;
  }
  for (uint32_t i = 0; i < params.runs; ++i) {
    const RunWords& run = runs[i];
    if (run.bytes == 0) continue;
    if (!Reachable(run.source, run.bytes) || !Reachable(run.destination, run.bytes)) return false;
  }
  gpu::testing::MoveOnCpu(params);
  return Run(params.signals, blocks);
}

struct Kernel {
  const char* name;
  size_t parameter_bytes;
  bool (*run)(const void* parameters, uint64_t blocks);
};

template <class Params>
constexpr Kernel Named(const char* name) {
  return {name, sizeof(Params),
          [](const void* p, uint64_t n) { return Run(*static_cast<const Params*>(p), n); }};
}

// Of reductions any name that begins so: one for each type, and more.
constexpr std::string_view kReduce = "shunt_reduce", kLarge = "_large";

const Kernel kKernels[] = {
    Named<gpu::ReduceParamsOf<Small>>("shunt_reduce"),
    Named<gpu::ReduceParamsOf<Large>>("shunt_reduce_large"),
    Named<gpu::SpreadParamsOf<Small>>("shunt_spread"),
    Named<gpu::SpreadParamsOf<Large>>("shunt_spread_large"),
    Named<gpu::MoveParamsOf<Small>>("shunt_move"),
    Named<gpu::MoveParamsOf<Large>>("shunt_move_large"),
    Named<gpu::MoveParamsOf<Small>>("shunt_move_host"),
    Named<gpu::MoveParamsOf<Large>>("shunt_move_host_large"),
    Named<gpu::SignalsOf<Small>>("shunt_signal"),
    Named<gpu::SignalsOf<Large>>("shunt_signal_large"),
};

bool IsNamed(const Kernel& kernel, std::string_view name) {
  const std::string_view own = kernel.name;
  if (own.substr(0, kReduce.size()) != kReduce) return name == own;
  const auto is_large = [](std::string_view any) {
    return any.size() > kLarge.size() && any.substr(any.size() - kLarge.size()) == kLarge;
  };
  return name.substr(0, kReduce.size() + 1) == "shunt_reduce_" && is_large(name) == is_large(own);
}

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
    if (IsNamed(kernel, name)) {
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
  const uint64_t blocks = uint64_t{blocks_x} * blocks_y * blocks_z;
  return static_cast<CUresult>(Submit(stream, [kernel, blocks, copy = std::move(copy)](uint64_t*) {
    if (!kernel->run(copy.data(), blocks)) Lose(CUDA_ERROR_ILLEGAL_ADDRESS);
    return true;
  }));
}
