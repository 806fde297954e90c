// What the daemon and a service manager (systemd) tell each other. Started by anything else, the
// daemon tells nobody, and is given nothing.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/core/unix_socket.h"

namespace shunt::daemon {

// `words` is what `systemctl status` shows: one line; what would end it is replaced.
void TellReady(std::string_view words);
void TellStatus(std::string_view words);
void TellReloading(std::string_view words);
// Stopping may take as long as `at_most`, whatever the unit's TimeoutStopSec says.
void TellStopping(std::string_view words, std::chrono::nanoseconds at_most);
// Feeds the watchdog.
void TellAlive();

// How long the watchdog waits to be fed; 0 if there is none.
std::chrono::nanoseconds WatchdogPeriod();

// The daemon's two listening sockets. Those that are not given have no descriptor.
struct GivenSockets {
  UnixListener grpc;
  UnixListener lease;
};

// What a socket unit passes on; nothing where there is none. INVALID_ARGUMENT names the socket and
// its place: both must be there, of their types, at `socket` and beside it, because that is where
// clients look. Once, before threads start: the descriptors are taken.
absl::StatusOr<GivenSockets> TakeGivenSockets(const std::string& socket);

}  // namespace shunt::daemon
