// Numbers with units, as description files and flags write them.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace shunt::tools {

// INVALID_ARGUMENT says what is expected, to follow "KEY is VALUE, ".

// "250 Mbit/s" or "250mbit", "50 GB/s", "1.5 GiB/s": bytes a second.
absl::StatusOr<double> ParseRate(std::string_view text);
// "30us", "1.5 ms", "3 s": seconds.
absl::StatusOr<double> ParseSeconds(std::string_view text);
// "64KiB", "1 MiB", "16M", "100 kB", "512": bytes. A bare K, M or G is a power of 1024, as in
// shunt-perf.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
// "0.95".
absl::StatusOr<double> ParseNumber(std::string_view text);
absl::StatusOr<int64_t> ParseInteger(std::string_view text);

}  // namespace shunt::tools
