// Little-endian numbers in byte strings.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

namespace shunt::transport::wire {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

template <typename T>
void Put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

template <typename T>
T Get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace shunt::transport::wire
