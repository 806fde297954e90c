// The daemon: makes the parts and joins them. Everything else is in them.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config.h"
#include "daemon/service_manager.h"

namespace shunt::daemon {

class Daemon {
 public:
  // Listens on both sockets when it returns. Errors name the key or the path that is at fault.
  // `given`: sockets that listen already; the others are made.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config,
                                                       GivenSockets given = {});

  // The methods below are called on one thread, which is not one of the daemon's.

  // Takes over the keys that change live (config_reload.h) and says in the log which others wait
  // for the next start. Returns the same in words.
  virtual std::string Reload(const Config& read) = 0;
  // The threads that everything depends on and that have not answered what the last call asked
  // them: the loops of the control plane, of gRPC, and of the other nodes. Not the threads that
  // move data, add, or wait for disks: those may be busy for long.
  virtual std::vector<std::string> SilentThreads() = 0;
  // "3 sessions, 1 communicator".
  virtual std::string Summary() const = 0;
  // How long Stop gives running operations.
  virtual std::chrono::nanoseconds grace_period() const = 0;

  // Begins nothing new, gives running operations the grace period, then ends them, and gives back
  // everything: sockets that it made are removed. Once.
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
