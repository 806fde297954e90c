// What a block store keeps: blocks of bytes under keys, in tiers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace shunt::tiers {

// From the fastest down. Numbers are those of the index and of the C interface.
enum class Tier : uint8_t { kMemory = 0, kFile = 1, kObjects = 2 };
inline constexpr size_t kTiers = 3;

inline constexpr size_t kKeyBytesMax = 64;

struct Block {
  std::string key;
  uint64_t bytes = 0;
  uint32_t sum = 0;  // Checksum() of its bytes; 0 while it was in memory alone

  friend bool operator==(const Block&, const Block&) = default;
};

// CRC32C. Begin with 0, or with the sum of what comes before.
uint32_t Checksum(uint32_t sum, std::span<const std::byte> bytes);

// INVALID_ARGUMENT unless it has 1 to 64 bytes.
absl::Status CheckKey(std::string_view key);
// Lower-case hexadecimal, two digits a byte: for object names and for words.
std::string Hex(std::string_view key);

}  // namespace shunt::tiers
