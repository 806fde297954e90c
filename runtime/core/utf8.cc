#include "runtime/core/utf8.h"

#include <algorithm>

namespace shunt {

size_t Utf8CharacterBytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond the last code point.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f)) return 0;
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) return 0;
  return bytes;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string Printable(std::string_view text) {
  std::string out(text);
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = Utf8CharacterBytes(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (bytes == 0 || byte < 0x20 || byte == 0x7f) out[i] = '?';
    i += std::max<size_t>(bytes, 1);
  }
  return out;
}

}  // namespace shunt
