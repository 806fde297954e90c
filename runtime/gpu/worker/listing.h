// What there is of GPUs, in words: their UUIDs as CUDA's tools write them, and the lines of
// `shunt-gpu-worker --list`.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/gpu/driver.h"

namespace shunt::gpu {

// "GPU-0a1b2c3d-0a1b-2c3d-0a1b-2c3d4e5f6071".
std::string UuidText(const Uuid& uuid);
// INVALID_ARGUMENT if it is none.
absl::StatusOr<Uuid> ParseUuid(std::string_view text);

// {"ordinal":0,"uuid":"GPU-…","name":"…","pci":"…","bytes":…}, without an end of line.
std::string ListingLine(const DeviceFacts& device);

}  // namespace shunt::gpu
