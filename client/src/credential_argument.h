// Keys and tokens that the C interface is given.
#pragma once

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/utf8.h"

namespace shunt::client {

// Keys are short; tokens of temporary ones have some thousand bytes.
inline constexpr size_t kCredentialBytesMax = 16384;

// "" for NULL. What is secret is in no words.
inline absl::StatusOr<std::string> CredentialArgument(const char* name, const char* text) {
  if (text == nullptr) return std::string();
  if (::strnlen(text, kCredentialBytesMax + 1) > kCredentialBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is longer than ", kCredentialBytesMax, " bytes"));
  }
  if (!shunt::IsUtf8(text)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is no UTF-8 text"));
  }
  return std::string(text);
}

}  // namespace shunt::client
