// Random numbers of the kernel.
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <string>

#include "runtime/core/check.h"

namespace shunt::cluster {

// Bytes that nobody can guess.
inline std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  SHUNT_CHECK(::getrandom(bytes.data(), count, 0) == static_cast<ssize_t>(count));
  return bytes;
}

// 64 bits, never 0.
inline uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) SHUNT_CHECK(::getrandom(&id, sizeof id, 0) == sizeof id);
  return id;
}

}  // namespace shunt::cluster
