// Asks a daemon for what it and the others have recorded.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "shunt/v1/records.pb.h"

namespace shunt::tools {

// Errors as AdminClient's.
absl::StatusOr<v1::GetRecordsResponse> AskRecords(const std::string& socket,
                                                  const v1::GetRecordsRequest& request);

}  // namespace shunt::tools
