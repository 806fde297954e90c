// Structs of the C interface that may grow: each begins with its size as its user compiled it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace shunt::client {

// Copies what both sides know. A newer program's further fields must be zero: it asks for nothing
// that this library does not have. Fields that an older program does not have are zero;
// `least_bytes` is the size that the struct had first.
template <typename Struct>
absl::Status ReadOptions(const char* name, size_t least_bytes, const Struct* given, Struct* out) {
  *out = Struct{};
  out->struct_size = sizeof(Struct);
  if (given == nullptr) return absl::OkStatus();
  const size_t size = given->struct_size;
  if (size < least_bytes || size > 4096) {
    return absl::InvalidArgumentError(absl::StrCat(name, ".struct_size is ", size,
                                                   ", expected sizeof(", name, "), ",
                                                   sizeof(Struct), " in this version"));
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  const size_t known = std::min(size, sizeof(Struct));
  if (std::any_of(bytes + known, bytes + size, [](std::byte b) { return b != std::byte{0}; })) {
    return absl::UnimplementedError(
        absl::StrCat(name, " has fields set that this version of libshunt does not know"));
  }
  std::memcpy(out, given, known);
  out->struct_size = sizeof(Struct);
  return absl::OkStatus();
}

// The other way: fills the first struct_size bytes that the user's struct has.
template <typename Struct>
absl::Status FillStruct(const char* name, Struct value, Struct* out) {
  const size_t size = out->struct_size;
  if (size < sizeof(size_t) || size > 4096) {
    return absl::InvalidArgumentError(absl::StrCat(name, ".struct_size is ", size,
                                                   ", expected sizeof(", name, "), ",
                                                   sizeof(Struct), " in this version"));
  }
  value.struct_size = size;
  if (size > sizeof(Struct)) std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(out, &value, std::min(size, sizeof(Struct)));
  return absl::OkStatus();
}

}  // namespace shunt::client
