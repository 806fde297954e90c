// Checksums, by OpenSSL.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace shunt::storage {

using Spans = std::vector<absl::Span<std::byte>>;

// 16 bytes. What the header Content-MD5 carries in base64, and what S3's ETags are made of.
std::string Md5(const Spans& data);
std::string Md5(std::string_view data);
// In hexadecimal: what Signature Version 4 calls the hash of a payload.
std::string Sha256Hex(std::string_view data);

}  // namespace shunt::storage
