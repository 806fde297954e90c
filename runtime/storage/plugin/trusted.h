// Whether a library may be loaded: its code becomes ours, so nobody may change it whom we do not
// trust anyway.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace shunt::storage {

// That the file at that absolute path, the directory that it is in, and that of the path if it is a
// link, are root's or this process's user's, and that neither their groups nor others may write to
// them. PERMISSION_DENIED names the place, its owner and mode; NOT_FOUND there is no such file.
absl::Status CheckTrusted(const std::string& path);

}  // namespace shunt::storage
