// Looks up a name's addresses. On the event loop's thread, without blocking it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/event_loop.h"

namespace shunt::cluster {

class DnsResolver {
 public:
  using Done = std::function<void(absl::StatusOr<std::vector<std::string>>)>;
  // Ends what is in flight; callbacks do not come any more.
  virtual ~DnsResolver() = default;
  // IPv4 and IPv6 addresses as text. NOT_FOUND if the name has none; UNAVAILABLE if no server says.
  virtual void Resolve(const std::string& name, Done done) = 0;
};

// `server`: HOST:PORT, the host an address; "": the machine's.
std::unique_ptr<DnsResolver> MakeDnsResolver(daemon::EventLoop* loop, const std::string& server);

}  // namespace shunt::cluster
