// Small helpers for words that go to people.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/string_view.h"

namespace shunt::daemon {

// Debian's absl::string_view is a type of its own.
inline absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

// At most `bytes` bytes of `text`, which is UTF-8, cut between characters.
inline std::string Utf8Prefix(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return std::string(text.substr(0, bytes));
}

}  // namespace shunt::daemon
