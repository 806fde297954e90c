// CRC32C (the Castagnoli polynomial, as in RFC 3720): with the processor's instruction where it has
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shunt::transport::wire {

// Of what `crc` was computed over and `bytes` after it. Begin with 0.
uint32_t Crc32c(uint32_t crc, std::span<const std::byte> bytes);

// The same by table, on any processor.
uint32_t Crc32cByTable(uint32_t crc, std::span<const std::byte> bytes);

}  // namespace shunt::transport::wire
