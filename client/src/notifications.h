// Notifications of a session's agent: what others send with their transfers, or alone.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/lease_connection.h"
#include "runtime/core/fd.h"

namespace shunt::client {

// Thread-safe.
class Notifications {
 public:
  // `lease` outlives this.
  explicit Notifications(LeaseConnection* lease) : lease_(lease) {}

  absl::Status Send(const std::string& agent, const std::string& payload);
  // At most `max` (0: as many as fit) of what has come; waits until `deadline_ns` at most for the
  // first one. Empty at the deadline.
  absl::StatusOr<NotificationsTaken> Take(uint32_t max, int64_t deadline_ns);
  // Readable when there may be something to take.
  absl::StatusOr<int> EventFd();

 private:
  LeaseConnection* const lease_;
  absl::StatusOr<NotificationsTaken> Ask(uint32_t max, int64_t wait_ms);

  std::mutex mutex_;
  std::condition_variable asked_;
  // A request waits at the daemon: of two it would end the elder.
  bool asking_ = false;
  UniqueFd event_;
};

}  // namespace shunt::client
