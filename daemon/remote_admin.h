// The Admin service for operators on other machines, on the port where daemons talk to each other.
// Who shows a certificate with one of the names that admin.remote lists sees what root sees, and
// can change nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/services.h"

namespace grpc {
class Service;
}

namespace shunt::daemon {

class RemoteAdmin {
 public:
  // Answers UNAVAILABLE before Open.
  static std::unique_ptr<RemoteAdmin> Make(std::vector<std::string> names);
  // From now on; `services` and all that it works on stay until Close.
  virtual void Open(Services* services) = 0;
  // Waits for answers that are being made, and makes no more. Not on the loop's thread.
  virtual void Close() = 0;
  // For the server; it outlives that one.
  virtual grpc::Service* service() = 0;
  virtual ~RemoteAdmin() = default;

 protected:
  RemoteAdmin() = default;
};

}  // namespace shunt::daemon
