#include "tools/output.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace shunt::tools {

void Json::Key(std::string_view key) {
  Separate();
  Quote(key);
  body_ += ": ";
  keyed_ = true;
}

void Json::Separate() {
  if (!keyed_ && !body_.empty()) body_ += ", ";
  keyed_ = false;
}

void Json::Quote(std::string_view text) {
  body_ += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      body_ += '\\';
      body_ += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", byte);
      body_ += escape;
    } else {
      body_ += c;
    }
  }
  body_ += '"';
}

std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return out;
}

std::string Table::Text() const {
  std::vector<size_t> widths(rows_.front().size());
  std::vector<bool> numbers(widths.size(), rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < widths.size(); ++c) {
      widths[c] = std::max(widths[c], rows_[r][c].size());
      if (r > 0 && (rows_[r][c].empty() ||
                    rows_[r][c].find_first_not_of("0123456789.") != std::string::npos)) {
        numbers[c] = false;
      }
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string pad(widths[c] - row[c].size(), ' ');
      absl::StrAppend(&line, c == 0 ? "" : "  ", numbers[c] ? pad : "", row[c],
                      numbers[c] ? "" : pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string SizeText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), value >= 100 || unit == 0 ? "%.0f %s" : "%.1f %s", value,
                kUnits[unit]);
  return text;
}

std::string AgeText(double seconds) {
  const auto whole = static_cast<long long>(seconds);
  if (seconds < 60)
    return absl::StrCat(static_cast<double>(static_cast<long long>(seconds * 10)) / 10, " s");
  if (whole < 3600) return absl::StrCat(whole / 60, " min ", whole % 60, " s");
  if (whole < 86400) return absl::StrCat(whole / 3600, " h ", whole % 3600 / 60, " min");
  return absl::StrCat(whole / 86400, " d ", whole % 86400 / 3600, " h");
}

}  // namespace shunt::tools
