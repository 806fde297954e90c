#include "daemon/metrics/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <fstream>
#include <string_view>

namespace shunt::daemon::metrics {
namespace {

bool Has(const ifaddrs& interface, const std::string& address) {
  if (interface.ifa_addr == nullptr) return false;
  char text[INET6_ADDRSTRLEN] = {};
  const int family = interface.ifa_addr->sa_family;
  const void* bytes = nullptr;
  if (family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(interface.ifa_addr)->sin_addr;
  } else if (family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr)->sin6_addr;
  }
  return bytes != nullptr && ::inet_ntop(family, bytes, text, sizeof(text)) != nullptr &&
         address == text;
}

}  // namespace

uint64_t InterfaceBytesPerSecond(const std::string& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return 0;
  std::string name;
  for (const ifaddrs* at = all; at != nullptr && name.empty(); at = at->ifa_next) {
    if (Has(*at, address)) name = at->ifa_name;
  }
  ::freeifaddrs(all);
  int64_t megabits = 0;
  if (!name.empty()) std::ifstream("/sys/class/net/" + name + "/speed") >> megabits;
  return megabits > 0 ? static_cast<uint64_t>(megabits) * 125'000 : 0;
}

}  // namespace shunt::daemon::metrics
