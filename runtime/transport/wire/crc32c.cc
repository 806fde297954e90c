#include "runtime/transport/wire/crc32c.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace shunt::transport::wire {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc,
                                                         std::span<const std::byte> bytes) {
  uint64_t value = ~crc;
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    value = _mm_crc32_u64(value, word);
  }
  auto narrow = static_cast<uint32_t>(value);
  for (; left > 0; --left, ++p) narrow = _mm_crc32_u8(narrow, static_cast<uint8_t>(*p));
  return ~narrow;
}
#endif

}  // namespace

uint32_t Crc32cByTable(uint32_t crc, std::span<const std::byte> bytes) {
  crc = ~crc;
  for (std::byte b : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(b)) & 0xff];
  return ~crc;
}

uint32_t Crc32c(uint32_t crc, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ByInstruction(crc, bytes);
#endif
  return Crc32cByTable(crc, bytes);
}

}  // namespace shunt::transport::wire
