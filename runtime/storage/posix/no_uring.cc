// Built instead of uring_engine.cc where there is no liburing.
#include "runtime/storage/posix/engine.h"

namespace shunt::storage {

absl::StatusOr<std::unique_ptr<Engine>> MakeUringEngine(uint32_t, int) {
  return absl::UnimplementedError("this build has no io_uring, expected SHUNT_WITH_URING");
}

}  // namespace shunt::storage
