// FNV-1a (Fowler, Noll, Vo), 64 bits: the same on every node and in every run. No secret is safe in
// it.
#pragma once

#include <cstdint>
#include <string_view>

namespace shunt {

inline constexpr uint64_t kFnvSeed = 0xcbf29ce484222325;

constexpr uint64_t Fnv1a(std::string_view bytes, uint64_t hash = kFnvSeed) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}
// Of a number's bytes, the lowest first.
constexpr uint64_t Fnv1a(uint64_t number, uint64_t hash) {
  for (int i = 0; i < 64; i += 8) hash = (hash ^ (number >> i & 0xff)) * 0x100000001b3;
  return hash;
}

}  // namespace shunt
