// The lease socket: requests and replies of many threads on one connection. The connection is the
// session: while it is open the session lives.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/src/lease_messages.h"
#include "runtime/core/fd.h"

namespace shunt::client {

// Thread-safe. Starts no thread: of the callers that wait, one reads the socket for all.
class LeaseConnection {
 public:
  // UNAVAILABLE if no daemon listens at `path`.
  static absl::StatusOr<std::unique_ptr<LeaseConnection>> Connect(const std::string& path);

  struct Reply {
    LeaseReply message;  // its code is 0
    std::vector<UniqueFd> fds;
  };

  // Sends a request, with `fds`, which stay the caller's, and waits for its reply. The daemon's
  // failures come back with their code and words. UNAVAILABLE if the daemon is gone, or has not
  // answered by `deadline_ns` (CLOCK_MONOTONIC).
  absl::StatusOr<Reply> Call(const LeaseRequest& request, int64_t deadline_ns,
                             std::span<const int> fds = {});

  // For who waits until the daemon's end is closed (POLLRDHUP), and for nothing else.
  int fd() const { return socket_.get(); }
  // True once the daemon's end is closed. A system call, about 200 ns.
  bool Gone();

  // Ends the session, also where a child process still has a copy of the descriptor. Waiting calls
  // end with UNAVAILABLE.
  void Shutdown();

  // In a forked child: lets go of the parent's lease. Async-signal-safe.
  void CloseInChild();

 private:
  struct Waiter {
    bool done = false;
    absl::StatusOr<Reply> reply = absl::UnknownError("");
  };

  explicit LeaseConnection(UniqueFd socket);

  absl::Status Send(uint64_t id, const LeaseRequest& request, std::span<const int> fds);
  // Reads one packet for whom it concerns; waits for it until `deadline_ns`. Called by one thread
  // at a time, without the lock.
  void ReadOne(int64_t deadline_ns);
  void Deliver(LeaseReply message, std::vector<UniqueFd> fds);
  void FailAll();

  UniqueFd socket_;
  std::atomic<bool> gone_{false};
  std::mutex send_mutex_;

  std::mutex mutex_;  // the rest
  std::condition_variable changed_;
  std::map<uint64_t, Waiter*> waiters_;
  uint64_t next_id_ = 1;
  bool reading_ = false;
  std::vector<std::byte> buffer_;  // the reader's
};

}  // namespace shunt::client
