// What shuntctl and the status page show of links, transfers and the machine; and draining.
#include "daemon/admin_views.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/cluster.h"
#include "daemon/log.h"
#include "daemon/services.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"
#include "runtime/topology/devices.h"

namespace shunt::daemon {
namespace {

// Rows of a list of the page.
constexpr int kRowsMax = 200;
constexpr int kMembersMax = 64;

absl::Status CheckSeesAll(const Peer& peer, std::string_view what) {
  if (SeesAll(peer)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "user ", peer.uid, " may not ", absl::string_view(what.data(), what.size()),
      ": root and the daemon's own user, ", ::geteuid(), ", may; run it as one of them"));
}

const char* ClassName(p2p::Priority priority) {
  switch (priority) {
    case p2p::Priority::kLatency:
      return "latency";
    case p2p::Priority::kBulk:
      return "bulk";
    case p2p::Priority::kBackground:
      return "background";
  }
  return "bulk";
}

void Fill(const NodeEngine::LinkView& from, v1::Link* link) {
  link->set_connected(from.connected);
  link->set_connection(uint64_t{from.connection} + 1);
  link->set_latency_ns(from.measured.latency_ns);
  link->set_message_ns(from.measured.message_ns);
  link->set_bytes_per_second(from.measured.bytes_per_s);
  link->set_bytes_sent(from.counters.payload_bytes_sent);
  link->set_bytes_received(from.counters.payload_bytes_received);
  link->set_messages_sent(from.counters.messages_sent);
  link->set_messages_received(from.counters.messages_received);
  link->set_stalls(from.counters.credit_stalls);
}

template <typename List>
uint32_t CutTo(List* list, int most) {
  const int total = list->size();
  if (total > most) list->DeleteSubrange(most, total - most);
  return static_cast<uint32_t>(total);
}

}  // namespace

v1::GetTopologyResponse Services::GetTopology() const {
  v1::GetTopologyResponse response;
  response.set_cpus(static_cast<uint32_t>(context_.topology->cpus.size()));
  response.set_memory_bytes(context_.topology->memory_bytes);
  for (const topology::NumaNode& node : context_.topology->numa_nodes) {
    v1::NumaNode* out = response.add_numa_nodes();
    out->set_index(static_cast<uint32_t>(node.index));
    out->set_cpus(topology::FormatCpuList(node.cpus));
    out->set_memory_bytes(node.memory_bytes);
  }
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) == 0) response.set_host(Printable(host));
  for (const topology::Nic& nic : topology::FindNics()) {
    v1::Nic* out = response.add_nics();
    out->set_name(Printable(nic.name));
    out->set_state(nic.state);
    out->set_bits_per_second(nic.bits_per_second);
    out->set_numa_node(nic.numa_node);
    out->set_rdma_device(nic.rdma_device);
    out->set_bytes_received(nic.bytes_received);
    out->set_bytes_sent(nic.bytes_sent);
  }
  for (const topology::Gpu& gpu : topology::FindGpus()) {
    v1::Gpu* out = response.add_gpus();
    out->set_pci_address(gpu.pci_address);
    out->set_name(Printable(gpu.name));
    out->set_numa_node(gpu.numa_node);
    out->set_driver(gpu.driver);
  }
  return response;
}

absl::StatusOr<v1::ListLinksResponse> Services::ListLinks(const Peer& peer) const {
  SHUNT_RETURN_IF_ERROR(CheckSeesAll(peer, "see its links to other nodes"));
  v1::ListLinksResponse response;
  const OperationHost& host = *context_.operations;
  if (host.cluster == nullptr) return response;
  std::vector<NodeEngine::LinkView> links;
  if (host.engine != nullptr) links = host.engine->Links();
  const cluster::ClusterView view = host.cluster->GetView();
  for (const cluster::PeerTable::Row& row : view.peers) {
    if (row.state == cluster::PeerTable::State::kSelf) continue;
    v1::Link* const out = response.add_links();
    ToProto(row, out->mutable_node());
    // A node that has restarted may be there in two lives: the one that is connected counts.
    const NodeEngine::LinkView* best = nullptr;
    for (const NodeEngine::LinkView& link : links) {
      if (link.node.name != row.member.name) continue;
      if (best == nullptr || link.connected ||
          (!best->connected && link.connection > best->connection)) {
        best = &link;
      }
    }
    if (best != nullptr) Fill(*best, out);
  }
  return response;
}

v1::ListTransfersResponse Services::ListTransfers(const Peer& peer) const {
  v1::ListTransfersResponse response;
  const int64_t now = NowNs();
  for (const TransferTable::InFlight& transfer : context_.transfers->View()) {
    if (!SeesAll(peer) && transfer.uid != peer.uid) continue;
    v1::TransferInfo* const out = response.add_transfers();
    out->set_session_id(transfer.session);
    out->set_transfer_id(transfer.id);
    out->set_uid(transfer.uid);
    out->set_agent(Printable(transfer.agent));
    out->set_other(Printable(transfer.other));
    out->set_route(RouteName(transfer.route));
    out->set_service_class(ClassName(transfer.priority));
    out->set_bytes(transfer.bytes);
    out->set_bytes_done(transfer.bytes_done);
    if (transfer.since_ns != 0) {
      out->set_age_seconds(1e-9 * static_cast<double>(now - transfer.since_ns));
    }
  }
  return response;
}

absl::Status Services::DrainNow(const Peer& peer, const v1::DrainRequest& request) {
  SHUNT_RETURN_IF_ERROR(CheckSeesAll(peer, "drain it"));
  if (stopping()) return CheckNotStopping();
  if (request.undo()) {
    drain_.Undo();
    return absl::OkStatus();
  }
  constexpr uint64_t kGraceMaxMs = 24 * 3600 * 1000ull;
  if (request.grace_ms() > kGraceMaxMs) {
    return absl::InvalidArgumentError(absl::StrCat("grace period of ", request.grace_ms(),
                                                   " ms, expected at most ", kGraceMaxMs));
  }
  drain_.Begin(request.grace_ms() != 0 ? std::chrono::milliseconds(request.grace_ms())
                                       : std::chrono::nanoseconds(context_.config->grace_period));
  return absl::OkStatus();
}

v1::StatusPage Services::GetStatusPage() const {
  const Peer root;  // uid 0
  v1::StatusPage page;
  page.set_at_seconds(1e-9 * static_cast<double>(NowNs()));
  *page.mutable_status() = GetStatus(root);
  *page.mutable_topology() = GetTopology();
  if (absl::StatusOr<v1::ListLinksResponse> links = ListLinks(root); links.ok()) {
    page.mutable_links()->Swap(links->mutable_links());
  }
  page.mutable_sessions()->Swap(ListSessions(root).mutable_sessions());
  page.mutable_communicators()->Swap(ListCommunicators(root).mutable_communicators());
  page.mutable_transfers()->Swap(ListTransfers(root).mutable_transfers());
  page.set_sessions_total(CutTo(page.mutable_sessions(), kRowsMax));
  page.set_communicators_total(CutTo(page.mutable_communicators(), kRowsMax));
  page.set_transfers_total(CutTo(page.mutable_transfers(), kRowsMax));
  for (v1::CommunicatorInfo& communicator : *page.mutable_communicators()) {
    CutTo(communicator.mutable_members(), kMembersMax);
  }
  for (const LogRecord& trouble : LastTroubles()) {
    v1::LogEntry* const out = page.add_warnings();
    out->set_unix_seconds(trouble.unix_seconds);
    out->set_level(trouble.level == LogLevel::kError ? "error" : "warn");
    out->set_line(Printable(trouble.line));
  }
  return page;
}

}  // namespace shunt::daemon
