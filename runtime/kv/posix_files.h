// A directory of the file system, and the lock that one process at a time has on it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/kv/files.h"

namespace shunt::tiers {

// NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (it is no directory), with the path.
absl::StatusOr<std::unique_ptr<LogDirectory>> OpenLogDirectory(const std::string& path);

// Held as long as the descriptor lives: also a process that was killed lets go of it.
// FAILED_PRECONDITION: another store, of this process or another one, has it.
absl::StatusOr<UniqueFd> LockDirectory(const std::string& path);

// The file `name` of exactly `bytes` bytes, all of which have room on the disk; what it held before
// stays, as far as it reaches. `*was_bytes`: its length before, 0 if it is new. RESOURCE_EXHAUSTED:
// no room.
absl::StatusOr<UniqueFd> OpenSlots(const std::string& path, uint64_t bytes, uint64_t* was_bytes);

}  // namespace shunt::tiers
