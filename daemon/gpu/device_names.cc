#include "daemon/gpu/device_names.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace shunt::daemon {
namespace {

constexpr std::string_view kUuidPrefix = "GPU-";
constexpr int kOrdinalMax = 1023;

// -1: it is none.
int Ordinal(std::string_view text) {
  int ordinal = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ordinal);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && ordinal >= 0 && ordinal <= kOrdinalMax ? ordinal : -1;
}

}  // namespace

bool IsDeviceName(std::string_view device) {
  if (device == "all" || Ordinal(device) >= 0) return true;
  if (device.size() <= kUuidPrefix.size() || !device.starts_with(kUuidPrefix)) return false;
  const std::string_view rest = device.substr(kUuidPrefix.size());
  return std::all_of(rest.begin(), rest.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == '-';
  });
}

bool NamesDevice(std::string_view device, int ordinal, std::string_view uuid) {
  if (device == "all") return true;
  if (const int number = Ordinal(device); number >= 0) return number == ordinal;
  return absl::StartsWithIgnoreCase(absl::string_view(uuid.data(), uuid.size()),
                                    absl::string_view(device.data(), device.size()));
}

}  // namespace shunt::daemon
