// The status page: an HTTP server of its own that serves two things, both to be read only.
//
//   GET /             the page: one document that asks for nothing from elsewhere
//   GET /status.json  what it shows
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shunt::daemon {

class PageServer {
 public:
  struct Options {
    std::string address;  // an IPv4 address or localhost, and a port; port 0: any
    // What /status.json is. Called on one of the server's threads, one at a time, and not more
    // often than each `fresh_ns`, however many ask.
    std::function<std::string()> status_json;
    int64_t fresh_ns = 500'000'000;
  };
  // Listens when it returns. INVALID_ARGUMENT for an address that can't be; UNAVAILABLE if it is
  // taken or not this machine's.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(Options options);
  // Lets requests that are being answered end, which may wait for `status_json`.
  virtual ~PageServer() = default;
  virtual uint16_t port() const = 0;

 protected:
  PageServer() = default;
};

}  // namespace shunt::daemon
