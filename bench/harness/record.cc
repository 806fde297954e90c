#include "bench/harness/record.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += absl::StrFormat("\\u%04x", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

Record& Record::Set(std::string_view key, std::string_view text) {
  fields_.emplace_back(key, Quote(text));
  return *this;
}

Record& Record::Set(std::string_view key, double number) {
  fields_.emplace_back(key, std::isfinite(number) ? absl::StrFormat("%.6g", number) : "null");
  return *this;
}

Record& Record::Set(std::string_view key, int64_t number) {
  fields_.emplace_back(key, std::to_string(number));
  return *this;
}

Record& Record::Set(std::string_view key, uint64_t number) {
  fields_.emplace_back(key, std::to_string(number));
  return *this;
}

std::string Record::ToJson() const {
  std::string out = "{";
  for (const auto& [key, value] : fields_) {
    absl::StrAppend(&out, out.size() > 1 ? ", " : "", Quote(key), ": ", value);
  }
  return out + "}";
}

absl::Status WriteJson(const std::string& path, const std::vector<Record>& records) {
  if (path.empty()) return absl::OkStatus();
  std::string text = "[";
  for (size_t i = 0; i < records.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "\n  " : ",\n  ", records[i].ToJson());
  }
  text += "\n]\n";
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return absl::OkStatus();
  }
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return ErrnoStatus(errno, absl::StrCat("cannot write ", path));
  const bool written = std::fputs(text.c_str(), file) >= 0;
  if (std::fclose(file) != 0 || !written) {
    return ErrnoStatus(errno, absl::StrCat("writing ", path));
  }
  return absl::OkStatus();
}

double Median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

absl::Status ParseBytes(std::string_view text, uint64_t* bytes) {
  const std::string owned(text);
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(owned.c_str(), &end);
  std::string unit(end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (unit.size() > 1 && unit.substr(1) == "ib") unit.resize(1);
  if (unit.size() > 1 && unit.substr(1) == "b") unit.resize(1);
  int shift = -1;
  if (unit.empty() || unit == "b") shift = 0;
  if (unit == "k") shift = 10;
  if (unit == "m") shift = 20;
  if (unit == "g") shift = 30;
  if (end == owned.c_str() || shift < 0 || errno != 0 || !(number >= 0) || number > 1e15) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", owned, "\" is not a size; expected a number with K, M or G"));
  }
  *bytes = static_cast<uint64_t>(std::ldexp(number, shift));
  return absl::OkStatus();
}

}  // namespace shunt::bench
