// Shunt under measurement, through the C interface of libshunt.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/harness/backend.h"

namespace shunt::bench {

// This thread's last failure in libshunt as a status: "WHAT: CODE: words". `code` is not SHUNT_OK.
absl::Status ShuntStatus(int code, const std::string& what);

// Opens a session at `socket` and joins communicator `name` as `rank` of `ranks`. Blocks until all
// ranks have. `gpu`: with GPU memory, on the rank's GPU; calls on such memory are on its stream.
absl::StatusOr<std::unique_ptr<Backend>> OpenShuntBackend(int rank, int ranks,
                                                          const std::string& socket,
                                                          const std::string& name,
                                                          bool gpu = false);

}  // namespace shunt::bench
