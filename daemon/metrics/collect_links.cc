// The ways to other nodes, and whether those are there.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/metrics/collector.h"
#include "daemon/metrics/peers.h"

namespace shunt::daemon::metrics {

using transport::LinkTally;
using transport::Traffic;

void Collector::Links(Page* page, int64_t now_ns) {
  Family& bytes = page->Counter(
      "shunt_link_bytes_total",
      "What this daemon has sent to another node's, and received, with its own headers and without "
      "those of TCP or RDMA. Classes are those of transfers (collectives are bulk); control is "
      "what carries no payload.");
  Family& used = page->Gauge("shunt_link_utilization_ratio",
                             "Bytes a second since the last scrape, of the link's capacity; of a "
                             "second or more.");
  Family& capacity = page->Gauge(
      "shunt_link_capacity_bytes_per_second",
      "Of each direction: as configured, or as measured when the connection was made, or as the "
      "interface says. Links of one interface share it.");
  Family& stalls = page->Counter("shunt_link_credit_stalls_total",
                                 "Messages that waited, when they were posted, for a slot or a "
                                 "grant of the receiver's.");
  Family& errors = page->Counter("shunt_link_protocol_errors_total",
                                 "What came from the other daemon and broke the protocol's rules.");
  Family& losses = page->Counter("shunt_link_losses_total",
                                 "Connections for payload that were lost, not given up.");
  Family& rtt = page->Gauge("shunt_peer_rtt_seconds",
                            "Round trip to the other node's daemon, as the kernel's TCP smooths "
                            "it.");
  if (sources_.links == nullptr) return;
  for (const LinkTally* link : sources_.links->List()) {
    uint64_t most = sources_.link_capacity;
    if (most == 0) most = link->bytes_per_s.value();
    if (most == 0) most = sources_.interface_capacity;
    if (most != 0) capacity.Add({{"link", link->name}}, most);
    for (const bool out : {true, false}) {
      const std::string direction = out ? "out" : "in";
      uint64_t sum = 0;
      for (size_t t = 0; t < transport::kTraffics; ++t) {
        const uint64_t value = (out ? link->sent : link->received)[t].value();
        sum += value;
        bytes.Add({{"link", link->name},
                   {"direction", direction},
                   {"class", std::string(transport::Name(static_cast<Traffic>(t)))}},
                  value);
      }
      const double rate = rates_.Of(absl::StrCat(link->name, " ", direction), sum, now_ns);
      if (most == 0) continue;
      used.Add({{"link", link->name}, {"direction", direction}}, rate / static_cast<double>(most));
    }
    stalls.Add({{"link", link->name}}, link->credit_stalls.value());
    errors.Add({{"link", link->name}}, link->protocol_errors.value());
    losses.Add({{"link", link->name}}, link->losses.value());
    if (link->rtt_ns.value() != 0) {
      rtt.Add({{"peer", link->name}}, 1e-9 * static_cast<double>(link->rtt_ns.value()));
    }
  }
}

void Collector::Nodes(Page* page) {
  Family& up = page->Gauge("shunt_peer_up",
                           "1 for another member whose daemon answers this one, 0 for one that "
                           "does not; aggregators too.");
  const auto name_of = [](const cluster::PeerTable::Row& row) {
    return row.member.name.empty() ? row.member.address : row.member.name;
  };
  const std::vector<cluster::PeerTable::Row> rows = peers_->Get();
  std::set<std::string> members;
  for (const cluster::PeerTable::Row& row : rows) members.insert(name_of(row));
  peer_names_.Retain(members);
  std::map<std::string, bool> all;
  for (const cluster::PeerTable::Row& row : rows) {
    if (row.state == cluster::PeerTable::State::kSelf) continue;
    const std::string name = name_of(row);
    const bool is_up = row.state == cluster::PeerTable::State::kUp;
    const auto [it, fresh] = all.emplace(peer_names_.Of(name), is_up);
    it->second = it->second && is_up;  // those that share "other"
  }
  for (const auto& [name, is_up] : all) up.Add({{"peer", name}}, is_up ? 1.0 : 0.0);

  static const transport::RegistrationTally kNone;
  const transport::RegistrationTally& cache =
      sources_.links == nullptr ? kNone : sources_.links->registrations;
  Family& looks = page->Counter("shunt_rdma_registration_lookups_total",
                                "Pieces that RDMA was to move, by whether their memory was "
                                "registered already.");
  looks.Add({{"outcome", "hit"}}, cache.hits.value());
  looks.Add({{"outcome", "miss"}}, cache.misses.value());
  page->Counter("shunt_rdma_registration_evictions_total",
                "Registrations that made room for others.")
      .Add({}, cache.evictions.value());
  page->Gauge("shunt_rdma_registrations", "Pieces of memory that are registered.")
      .Add({}, cache.entries.value());
  page->Gauge("shunt_rdma_registered_bytes", "Memory that is registered with network cards.")
      .Add({}, cache.bytes.value());
}

}  // namespace shunt::daemon::metrics
