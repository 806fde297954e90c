// The lease socket: SOCK_SEQPACKET, one packet is one LeaseRequest or LeaseReply, descriptors ride
// along. A connection is a session: it ends when the connection closes. Runs on the event loop's
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client_fd.h"
#include "daemon/event_loop.h"
#include "daemon/services.h"
#include "runtime/core/unix_socket.h"

namespace shunt::daemon {

class LeaseServer {
 public:
  // Serves what connects to `listener`. `loop` and `services` outlive it.
  static absl::StatusOr<std::unique_ptr<LeaseServer>> Start(UnixListener listener,
                                                            size_t connections_max,
                                                            size_t connections_max_per_user,
                                                            EventLoop* loop, Services* services);
  // On the loop's thread, or when nobody runs it any more. Closes everything; sessions end.
  ~LeaseServer();

 private:
  class Connection;

  LeaseServer(UnixListener listener, size_t connections_max, size_t connections_max_per_user,
              EventLoop* loop, Services* services)
      : listener_(std::move(listener)),
        connections_max_(connections_max),
        connections_max_per_user_(connections_max_per_user),
        loop_(loop),
        services_(services) {}
  void Accept();
  void Close(uint64_t connection);

  UnixListener listener_;
  const size_t connections_max_;
  const size_t connections_max_per_user_;
  EventLoop* const loop_;
  Services* const services_;
  FdCloser closer_;
  EventLoop::WatchId watch_ = 0;
  uint64_t next_connection_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> connections_;
  std::unordered_map<uint32_t, size_t> connections_of_user_;
  // What closures posted to the loop check before they touch this object.
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace shunt::daemon
