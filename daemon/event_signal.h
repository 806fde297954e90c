// Signalling an eventfd that came from a client.
//
// A plain write may block: the client shares the open file, can clear O_NONBLOCK and fill the
// counter. The kernel's own way of signalling (an asynchronous read whose completion goes to an
// eventfd) never blocks.
#pragma once

#include "absl/status/status.h"

namespace shunt::daemon {

// INVALID_ARGUMENT if `fd` is anything but an eventfd.
absl::Status CheckEventFd(int fd);

// Adds 1. Never blocks. `fd` passed CheckEventFd. Any thread.
void SignalClientEventFd(int fd);

}  // namespace shunt::daemon
