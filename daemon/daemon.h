// The daemon: makes the parts and joins them. Everything else is in them.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config.h"

namespace shunt::daemon {

class Daemon {
 public:
  // Listens on both sockets when it returns. Errors name the key or the path that is at fault.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config);

  // Begins nothing new, gives running operations the grace period, then ends them, and gives back
  // everything: sockets are removed. Once, not on a thread of the daemon.
  virtual void Stop() = 0;
  // Stops without a grace period if Stop was not called.
  virtual ~Daemon() = default;

 protected:
  Daemon() = default;
};

// Raises the process's limit of descriptors as far as it may; keeps malloc from growing an arena
// for each thread. For main(), before threads start.
void PrepareProcess();

}  // namespace shunt::daemon
