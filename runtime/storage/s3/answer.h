// What an answer of S3 means: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace shunt::storage {

struct S3Failure {
  std::string code;  // S3's own word, such as "NoSuchKey"; empty if the answer has none
  absl::Status status;
  bool retry = false;            // the same request may succeed later
  bool new_credentials = false;  // with fresh keys it may succeed
};

// Of an HTTP status that is not a success. `what` names the object.
S3Failure Explain(std::string_view what, int http_status, std::string_view body);

// "bytes 3-9/70" as offset 3 of 70 bytes.
struct ContentRange {
  uint64_t first = 0, last = 0, size = 0;
};
std::optional<ContentRange> ParseContentRange(std::string_view value);

}  // namespace shunt::storage
