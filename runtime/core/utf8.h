// Text of others, before it goes to logs, gRPC and terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shunt {

// Bytes of the well-formed UTF-8 character that `text` begins with (RFC 3629, section 4); 0 if
// there is none.
size_t Utf8CharacterBytes(std::string_view text);

bool IsUtf8(std::string_view text);

// The text with '?' for each byte that is not UTF-8 or is a control character.
std::string Printable(std::string_view text);

}  // namespace shunt
