// The main thread's work while the daemon runs: signals, the service manager, and its watchdog.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "daemon/config.h"
#include "daemon/daemon.h"

namespace shunt::daemon {

// Holds back SIGTERM, SIGINT and SIGHUP for Serve. Before any thread starts: all inherit it.
void BlockSignals();

// Says that the daemon is ready, then until SIGTERM or SIGINT: feeds the watchdog while the
// daemon's loops answer; on SIGHUP reads the configuration again, and keeps the old one, saying
// why, if that fails. Then stops the daemon.
void Serve(Daemon& daemon, const std::function<absl::StatusOr<Config>()>& read_config);

}  // namespace shunt::daemon
