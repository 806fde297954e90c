// Checks of requests that all stores share.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/storage/coverage.h"

namespace shunt::storage {

// That [offset, offset + bytes) lies in an object of `size` bytes. OUT_OF_RANGE with `what`, the
// object's name.
absl::Status CheckRange(std::string_view what, uint64_t offset, uint64_t bytes, uint64_t size);

// A budget's refusal, in words that help: the draft's bytes were written in so many separate
// ranges.
absl::Status Scattered(std::string_view what, const Coverage& written, const absl::Status& refused);

// That a name can be one of an object: 1 to `bytes_max` bytes without zero bytes.
absl::Status CheckName(std::string_view kind, std::string_view name, size_t bytes_max);

}  // namespace shunt::storage
