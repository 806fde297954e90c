// A worker whose commands the CPU executes, for tests of who supervises it. What it does is in the
// command: a copy is one, a collective of kHang stops the loop, one of kNever does not end.
#include <unistd.h>

#include <cstdio>

#include "daemon/gpu/worker_program.h"
#include "tests/gpu/cpu_worker.h"
#include "tests/gpu/worker_executors.h"

namespace shunt::gpu {
namespace {

class CpuExecutor : public Executor {
 public:
  explicit CpuExecutor(Driver* driver) : driver_(driver) {}

  absl::Status Begin(const Command& command, const Run* runs, uint64_t* completion,
                     uint64_t value) override {
    if (command.kind == CommandKind::kCollective && command.count == kHang) {
      std::fputs("this loop turns no more\n", stderr);
      for (;;) ::pause();
    }
    if (command.kind == CommandKind::kCollective && command.count == kNever) {
      return absl::OkStatus();
    }
    RunOnCpu(command, runs);
    std::atomic_ref<uint64_t>(*completion).store(value, std::memory_order_release);
    return absl::OkStatus();
  }
  absl::Status Health() override { return driver_->Memory().status(); }

 private:
  Driver* const driver_;
};

}  // namespace
}  // namespace shunt::gpu

int main(int argc, char** argv) {
  return shunt::daemon::WorkerMain(
      argc, argv,
      [](shunt::gpu::Driver* driver,
         const shunt::gpu::DeviceFacts&) -> absl::StatusOr<std::unique_ptr<shunt::gpu::Executor>> {
        return std::make_unique<shunt::gpu::CpuExecutor>(driver);
      });
}
