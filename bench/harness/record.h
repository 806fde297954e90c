// Results as flat JSON objects, the keys in the order in which they were set.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace shunt::bench {

class Record {
 public:
  Record& Set(std::string_view key, std::string_view text);
  Record& Set(std::string_view key, const char* text) { return Set(key, std::string_view(text)); }
  Record& Set(std::string_view key, double number);  // null if not finite
  Record& Set(std::string_view key, int64_t number);
  Record& Set(std::string_view key, uint64_t number);
  Record& Set(std::string_view key, int number) { return Set(key, static_cast<int64_t>(number)); }

  std::string ToJson() const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;  // values are JSON already
};

// Writes an array of the records; "-" is stdout. An empty path writes nothing.
absl::Status WriteJson(const std::string& path, const std::vector<Record>& records);

// The middle value (the upper of two). `values` is not empty.
double Median(std::vector<double> values);

// "1.5G", "64K", "2MiB", "8" in bytes, powers of 1024. INVALID_ARGUMENT names the text.
absl::Status ParseBytes(std::string_view text, uint64_t* bytes);

}  // namespace shunt::bench
