#include "runtime/gpu/worker/listing.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace shunt::gpu {
namespace {

constexpr std::string_view kPrefix = "GPU-";
// A dash stands before these bytes.
constexpr bool DashBefore(size_t byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// A name of the driver's, within quotes.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
    out.push_back(plain ? c : '?');
  }
  out.push_back('"');
  return out;
}

}  // namespace

std::string UuidText(const Uuid& uuid) {
  std::string text(kPrefix);
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (DashBefore(i)) text.push_back('-');
    absl::StrAppend(&text, absl::Hex(static_cast<uint8_t>(uuid[i]), absl::kZeroPad2));
  }
  return text;
}

absl::StatusOr<Uuid> ParseUuid(std::string_view text) {
  const auto wrong = [text] {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(absl::string_view(text.data(), text.size())),
                     "\" is no UUID of a GPU, expected one like GPU-01234567-89ab-cdef-0123-"
                     "456789abcdef"));
  };
  if (text.substr(0, kPrefix.size()) != kPrefix) return wrong();
  std::string_view rest = text.substr(kPrefix.size());
  Uuid uuid{};
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (DashBefore(i)) {
      if (rest.empty() || rest.front() != '-') return wrong();
      rest.remove_prefix(1);
    }
    if (rest.size() < 2) return wrong();
    const int high = HexDigit(rest[0]), low = HexDigit(rest[1]);
    if (high < 0 || low < 0) return wrong();
    uuid[i] = static_cast<std::byte>(high << 4 | low);
    rest.remove_prefix(2);
  }
  if (!rest.empty()) return wrong();
  return uuid;
}

std::string ListingLine(const DeviceFacts& device) {
  return absl::StrCat("{\"ordinal\":", device.ordinal, ",\"uuid\":\"", UuidText(device.uuid),
                      "\",\"name\":", Quoted(device.name), ",\"pci\":", Quoted(device.pci_bus_id),
                      ",\"bytes\":", device.total_bytes, "}");
}

}  // namespace shunt::gpu
