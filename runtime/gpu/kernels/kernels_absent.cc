// A build without the CUDA toolkit has no kernels.
#include "absl/status/status.h"
#include "runtime/gpu/kernels/kernels.h"

namespace shunt::gpu {
namespace {

absl::Status Absent() {
  return absl::UnimplementedError(
      "this build of Shunt has no GPU kernels: it was made without the "
      "CUDA toolkit");
}

}  // namespace

Kernels::Kernels(Driver* driver, int multiprocessors)
    : driver_(driver), multiprocessors_(static_cast<uint32_t>(multiprocessors)) {}
Kernels::~Kernels() = default;
absl::StatusOr<std::unique_ptr<Kernels>> Kernels::Load(Driver*, const DeviceFacts&) {
  return Absent();
}
absl::Status Kernels::Reduce(const ReduceParams&, Stream) { return Absent(); }
absl::Status Kernels::Spread(const SpreadParams&, Stream) { return Absent(); }
absl::Status Kernels::Move(const MoveParams&, Stream) { return Absent(); }
absl::Status Kernels::Signal(const Signals&, Stream) { return Absent(); }

}  // namespace shunt::gpu
