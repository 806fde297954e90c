// What a network interface says of itself.
#pragma once

#include <cstdint>
#include <string>

namespace shunt::daemon::metrics {

// Bytes a second of the interface that has the address, a numeric one; 0 if none has it, or it does
// not say (as virtual ones and wireless ones).
uint64_t InterfaceBytesPerSecond(const std::string& address);

}  // namespace shunt::daemon::metrics
