// The gRPC socket. Accepted here, because gRPC does not tell who is at the other end of a Unix
// socket; each connection is then handed to gRPC. One thread runs all calls: no handler blocks, and
// a call that waits (Join, Wait) is only a record.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/event_loop.h"
#include "daemon/services.h"

namespace shunt::daemon {

class GrpcServer {
 public:
  // Listens. `loop` and `services` outlive it.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& path, uint32_t mode,
                                                           EventLoop* loop, Services* services);
  // Ends calls that wait with CANCELLED, joins the thread. Not on the loop's thread, which must be
  // running.
  virtual ~GrpcServer() = default;

 protected:
  GrpcServer() = default;
};

}  // namespace shunt::daemon
