#include "runtime/core/json.h"

#include <cmath>
#include <cstdio>

namespace shunt {

void Json::Key(std::string_view key) {
  Separate();
  Quote(key);
  body_ += ": ";
  keyed_ = true;
}

void Json::Separate() {
  if (!keyed_ && !body_.empty()) body_ += ", ";
  keyed_ = false;
}

void Json::Quote(std::string_view text) {
  body_ += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      body_ += '\\';
      body_ += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", byte);
      body_ += escape;
    } else {
      body_ += c;
    }
  }
  body_ += '"';
}

// JSON has no other numbers than finite ones.
void Json::Number(double value) {
  char text[40] = "null";
  if (std::isfinite(value)) std::snprintf(text, sizeof(text), "%.12g", value);
  body_ += text;
}

}  // namespace shunt
