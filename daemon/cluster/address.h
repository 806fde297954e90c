// "host:port" and node names, as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shunt::cluster {

struct Address {
  std::string host;  // without the brackets of an IPv6 address
  uint16_t port = 0;
};

// "10.0.0.1:7071", "node-a:7071", "[fd00::1]:7071". INVALID_ARGUMENT with what was seen and what is
// expected. Port 0 only if `port_zero`.
absl::StatusOr<Address> ParseAddress(std::string_view text, bool port_zero);
// With brackets where they are needed.
std::string FormatAddress(const Address& address);

bool IsWildcard(const Address& address);  // 0.0.0.0 and ::
bool IsLoopback(const Address& address);  // 127.0.0.0/8, ::1 and localhost

// 1 to 63 of a-z A-Z 0-9 . _ - , beginning with a letter or a digit.
absl::Status CheckNodeName(std::string_view name);

}  // namespace shunt::cluster
