// Temporary names of drafts. Whoever writes one holds a lock (flock) on the file as long as it has
// the name, so that another process can tell what a dead one has left.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/core/fd.h"

namespace shunt::storage {

// "draft-" and 32 random hexadecimal digits.
std::string MakeDraftName();
bool IsDraftName(std::string_view name);

// Removes the drafts in `directory` that nobody holds, and nothing else.
absl::Status RemoveLeftovers(UniqueFd directory, std::string_view what);

}  // namespace shunt::storage
