#include "runtime/kv/types.h"

#include "absl/strings/str_cat.h"
#include "runtime/transport/wire/crc32c.h"

namespace shunt::tiers {

uint32_t Checksum(uint32_t sum, std::span<const std::byte> bytes) {
  return transport::wire::Crc32c(sum, bytes);
}

absl::Status CheckKey(std::string_view key) {
  if (!key.empty() && key.size() <= kKeyBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the key has ", key.size(), " bytes, expected 1 to ", kKeyBytesMax));
}

std::string Hex(std::string_view key) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * key.size());
  for (const char c : key) {
    const auto byte = static_cast<uint8_t>(c);
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

}  // namespace shunt::tiers
