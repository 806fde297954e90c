// A worker whose commands the CPU executes, all of them, as the plans of runtime/collectives say:
// for tests of who gives them, over a driver whose device memory is the host's.
#include <array>
#include <cstring>

#include "daemon/gpu/worker_program.h"
#include "runtime/collectives/exec/reduce.h"
#include "runtime/collectives/plan/local_plan.h"
#include "tests/gpu/worker_executors.h"

namespace shunt::gpu {
namespace {

std::byte* Pointer(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void RunSteps(const Command& command) {
  const CollectiveSpec spec{static_cast<OpKind>(command.op_kind),
                            static_cast<DataType>(command.dtype), static_cast<Redop>(command.redop),
                            command.root, command.count};
  const int world = static_cast<int>(command.places);
  const uint64_t bytes = spec.count * SizeOf(spec.dtype);
  if (bytes == 0) return;
  std::array<Scalar, kGatesMax> scalars;
  for (int i = 0; i < world; ++i) std::memcpy(scalars[i].bytes, command.place[i].scalar, 8);
  for (uint32_t i = 0; i < StepCount(spec, world); ++i) {
    const LocalStep step = StepAt(spec, world, i);
    std::array<const std::byte*, kGatesMax> sources;
    std::array<std::byte*, kGatesMax> destinations;
    for (int s = 0; s < step.src_count; ++s) {
      sources[s] = Pointer(command.place[step.src_first + s].in) + step.src_block * bytes;
    }
    for (int d = 0; d < step.dst_count; ++d) {
      destinations[d] = Pointer(command.place[step.dst_first + d].out) + step.dst_block * bytes;
    }
    if (!Reduces(spec.kind)) {
      for (int d = 0; d < step.dst_count; ++d) std::memmove(destinations[d], sources[0], bytes);
      continue;
    }
    ReduceInto({spec.dtype, spec.redop, world, StorePolicy::kTemporal},
               absl::MakeConstSpan(sources.data(), step.src_count),
               absl::MakeConstSpan(scalars.data(), step.src_count),
               absl::MakeConstSpan(destinations.data(), step.dst_count), spec.count);
  }
}

class CpuExecutor : public Executor {
 public:
  absl::Status Begin(const Command& command, const Run* runs, uint64_t* completion,
                     uint64_t value) override {
    if (command.kind == CommandKind::kCollective) RunSteps(command);
    RunOnCpu(command, runs);
    std::atomic_ref<uint64_t>(*completion).store(value, std::memory_order_release);
    return absl::OkStatus();
  }
  absl::Status Health() override { return absl::OkStatus(); }
};

}  // namespace
}  // namespace shunt::gpu

int main(int argc, char** argv) {
  return shunt::daemon::WorkerMain(
      argc, argv,
      [](shunt::gpu::Driver*,
         const shunt::gpu::DeviceFacts&) -> absl::StatusOr<std::unique_ptr<shunt::gpu::Executor>> {
        return std::make_unique<shunt::gpu::CpuExecutor>();
      });
}
