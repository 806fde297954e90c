// Transfers, and the stores of files and objects.
#include <string>

#include "daemon/metrics/collector.h"

namespace shunt::daemon::metrics {
namespace {

constexpr std::string_view ClassName(p2p::Priority priority) {
  switch (priority) {
    case p2p::Priority::kLatency:
      return "latency";
    case p2p::Priority::kBackground:
      return "background";
    case p2p::Priority::kBulk:
      break;
  }
  return "bulk";
}

}  // namespace

void Collector::Transfers(Page* page) const {
  Family& count = page->Counter("shunt_transfers_total",
                                "Transfers that this node's agents posted and that have ended. "
                                "Routes: copy (on this node), pull and push (with another), read "
                                "and write (with files and objects).");
  Family& bytes = page->Counter("shunt_transfer_bytes_total",
                                "Bytes of transfers that succeeded, counted where they were "
                                "posted.");
  Family& took = page->Histogram("shunt_transfer_duration_seconds",
                                 "From the post to the end, of transfers that succeeded.");
  for (size_t r = 0; r < kRoutes; ++r) {
    const TransferProbe::OfRoute& route = sources_.probe->transfers.routes[r];
    const std::string name = RouteName(static_cast<Route>(r));
    count.Add({{"route", name}, {"outcome", "success"}}, route.succeeded.value());
    count.Add({{"route", name}, {"outcome", "failure"}}, route.failed.value());
    for (size_t p = 0; p < kPriorities; ++p) {
      bytes.Add({{"route", name}, {"class", std::string(ClassName(static_cast<p2p::Priority>(p)))}},
                route.bytes[p].value());
    }
    took.Add({{"route", name}}, route.durations);
  }
  page->Gauge("shunt_transfers_in_flight", "Transfers that were begun and have not ended.")
      .Add({}, static_cast<uint64_t>(sources_.transfers->in_flight()));
}

void Collector::Stores(Page* page) const {
  Family& operations = page->Counter(
      "shunt_storage_operations_total",
      "Reads, writes, opens, commits and so on of a store: of batches, not of transfers. Stores: "
      "files, objects of an endpoint, a plugin.");
  Family& bytes = page->Counter("shunt_storage_bytes_total",
                                "Bytes that were read from a store or written to it.");
  Family& retries = page->Counter("shunt_storage_retries_total",
                                  "Requests to an object store's server that were made again.");
  for (const auto& [name, tally] : sources_.store_tallies->List()) {
    operations.Add({{"store", name}, {"outcome", "success"}}, tally->succeeded.value());
    operations.Add({{"store", name}, {"outcome", "failure"}}, tally->failed.value());
    bytes.Add({{"store", name}, {"direction", "read"}}, tally->bytes_read.value());
    bytes.Add({{"store", name}, {"direction", "write"}}, tally->bytes_written.value());
    retries.Add({{"store", name}}, tally->retries.value());
  }
}

}  // namespace shunt::daemon::metrics
