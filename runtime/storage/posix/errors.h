// Failed system calls on files, in codes that fit storage.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace shunt::storage {

// As ErrnoStatus, but RESOURCE_EXHAUSTED also for a file or a quota that may not grow,
// INVALID_ARGUMENT for directories, PERMISSION_DENIED for file systems that are read-only and names
// that lead out of a root, DATA_LOSS for failing media.
absl::Status FileError(int err, std::string_view what);

}  // namespace shunt::storage
