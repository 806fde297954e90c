// The pages over HTTP, for Prometheus: the one place that knows it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/metrics/collector.h"

namespace shunt::daemon::metrics {

class Exporter {
 public:
  // Listens at `address`, "127.0.0.1:9464" or "[::1]:9464"; port 0 takes a free one. `key` is what
  // errors call it by. ALREADY_EXISTS if the port is taken, NOT_FOUND if the address is not this
  // machine's.
  static absl::StatusOr<std::unique_ptr<Exporter>> Start(const std::string& address,
                                                         const std::string& key,
                                                         std::shared_ptr<Collector> collector);
  // No scrape is under way any more when it returns. The loops that the collector asks still run.
  virtual ~Exporter() = default;
  virtual uint16_t port() const = 0;

 protected:
  Exporter() = default;
};

}  // namespace shunt::daemon::metrics
