#include "daemon/cluster/address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace shunt::cluster {
namespace {

constexpr size_t kHostBytesMax = 253;  // of a DNS name, RFC 1035
constexpr size_t kNameBytesMax = 63;   // of a DNS label

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Wrong(std::string_view text, const char* why) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(View(text.substr(0, 300))), "\" ", why,
                   "; expected HOST:PORT such as \"10.0.0.1:7071\" or \"[fd00::1]:7071\""));
}

bool IsIpv6(const std::string& host) {
  in6_addr address;
  return ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

}  // namespace

absl::StatusOr<Address> ParseAddress(std::string_view text, bool port_zero) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Wrong(text, "has no port");
  Address address{std::string(text.substr(0, colon)), 0};
  const std::string_view port = text.substr(colon + 1);
  uint32_t number = 0;
  if (port.empty() || port.size() > 5 ||
      !std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }) ||
      !absl::SimpleAtoi(View(port), &number) || number > 65535) {
    return Wrong(text, "has no port from 1 to 65535");
  }
  if (number == 0 && !port_zero) return Wrong(text, "has port 0");
  address.port = static_cast<uint16_t>(number);
  std::string& host = address.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (!IsIpv6(host)) return Wrong(text, "has no IPv6 address in its brackets");
    return address;
  }
  if (host.empty()) return Wrong(text, "has no host");
  if (host.size() > kHostBytesMax || !std::all_of(host.begin(), host.end(), IsHostCharacter)) {
    return Wrong(text, "has no usable host");
  }
  return address;
}

std::string FormatAddress(const Address& address) {
  return IsIpv6(address.host) ? absl::StrCat("[", address.host, "]:", address.port)
                              : absl::StrCat(address.host, ":", address.port);
}

bool IsWildcard(const Address& address) {
  return address.host == "0.0.0.0" ||
         (IsIpv6(address.host) && address.host.find_first_not_of("0:") == std::string::npos);
}

bool IsLoopback(const Address& address) {
  in_addr v4;
  if (::inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  if (::inet_pton(AF_INET6, address.host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return address.host == "localhost";
}

absl::Status CheckNodeName(std::string_view name) {
  if (!name.empty() && name.size() <= kNameBytesMax &&
      absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
      std::all_of(name.begin(), name.end(), IsHostCharacter)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(View(name.substr(0, 100))), "\" is no name; expected 1 to ",
      kNameBytesMax, " letters, digits, '.', '_' and '-', beginning with a letter or a digit"));
}

}  // namespace shunt::cluster
