#include "tools/output.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace shunt::tools {

namespace {

// Of UTF-8 on a terminal, as long as nobody uses wide or combining characters.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return out;
}

std::string Table::Text(const Style& style) const {
  std::vector<std::string> header = rows_.front();
  std::vector<size_t> widths(header.size());
  std::vector<bool> right(header.size(), rows_.size() > 1);
  for (size_t c = 0; c < header.size(); ++c) {
    const bool forced = !header[c].empty() && header[c].front() == '>';
    if (forced) header[c].erase(0, 1);
    widths[c] = Width(header[c]);
    for (size_t r = 1; r < rows_.size(); ++r) {
      const std::string& cell = rows_[r][c];
      widths[c] = std::max(widths[c], Width(cell));
      if (cell.empty() || cell.find_first_not_of("0123456789.") != std::string::npos) {
        right[c] = false;
      }
    }
    right[c] = right[c] || forced;
  }
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    const std::vector<std::string>& row = r == 0 ? header : rows_[r];
    std::string line;
    size_t trailing = 0;  // spaces at the end, which nobody needs
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - Width(row[c]), ' ');
      const bool state = r > 0 && (header[c] == "STATE" || header[c] == "RESULT");
      const std::string cell = state ? style.State(row[c], row[c]) : row[c];
      absl::StrAppend(&line, c == 0 ? "" : "  ", right[c] ? pad : "", cell, right[c] ? "" : pad);
      const size_t spaces = row[c].empty() ? pad.size() + (c == 0 ? 0 : 2) : 0;
      trailing = row[c].empty() ? trailing + spaces : (right[c] ? 0 : pad.size());
    }
    line.resize(line.size() - trailing);
    absl::StrAppend(&text, r == 0 && rows_.size() > 1 ? style.Bold(line) : line, "\n");
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

std::string RateText(double bytes_per_second) {
  if (!(bytes_per_second > 0)) return "-";
  return absl::StrCat(SizeText(static_cast<uint64_t>(bytes_per_second)), "/s");
}

std::string BitRateText(uint64_t bits_per_second) {
  static constexpr const char* kUnits[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
  if (bits_per_second == 0) return "-";
  double value = static_cast<double>(bits_per_second);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g %s", value, kUnits[unit]);
  return text;
}

std::string TimeText(double seconds) {
  char text[32];
  if (seconds < 1e-3) {
    std::snprintf(text, sizeof(text), "%.1f us", 1e6 * seconds);
  } else if (seconds < 1) {
    std::snprintf(text, sizeof(text), "%.2f ms", 1e3 * seconds);
  } else {
    std::snprintf(text, sizeof(text), "%.2f s", seconds);
  }
  return text;
}

std::string PartText(double part, double whole) {
  if (!(whole > 0)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f %%", 100 * part / whole);
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
