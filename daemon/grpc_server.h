// The gRPC socket. Accepted here, because gRPC does not tell who is at the other end of a Unix
// socket; each connection is then handed to gRPC. One thread runs all calls: no handler blocks, and
// a call that waits (Join, Wait) is only a record.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/event_loop.h"
#include "daemon/services.h"
#include "runtime/core/unix_socket.h"

namespace shunt::daemon {

class GrpcServer {
 public:
  // Serves what connects to `listener`. `loop` and `services` outlive it.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(UnixListener listener, EventLoop* loop,
                                                           Services* services);
  // Has `f` called once on the thread that runs the calls. Any thread, not during destruction.
  virtual void Post(std::function<void()> f) = 0;
  // Ends calls that wait with CANCELLED, joins the thread. Not on the loop's thread, which must be
  // running.
  virtual ~GrpcServer() = default;

 protected:
  GrpcServer() = default;
};

}  // namespace shunt::daemon
