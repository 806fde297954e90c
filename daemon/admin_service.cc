#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "daemon/admin_views.h"
#include "daemon/cluster/cluster.h"
#include "daemon/services.h"
#include "daemon/version.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"
#include "runtime/exchange/choice.h"

namespace shunt::daemon {
namespace {

absl::StatusOr<OpKind> CollectiveOf(std::string_view name) {
  std::string known;
  for (int k = 0; k < kOpKindCount; ++k) {
    const auto kind = static_cast<OpKind>(k);
    if (kind == OpKind::kSend || kind == OpKind::kRecv || kind == OpKind::kAllToAllV) continue;
    if (Name(kind) == name) return kind;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(Name(kind)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("operation \"", Printable(name), "\", expected one of ", known));
}

void AddCluster(const cluster::ClusterView& view, v1::ClusterStatus* out) {
  out->set_name(view.self.cluster);
  out->set_node(view.self.name);
  out->set_address(view.self.address);
  out->set_membership_trouble(std::string(view.membership.message()));
  for (const cluster::PeerTable::Row& row : view.peers) {
    if (row.state == cluster::PeerTable::State::kSelf) continue;
    ToProto(row, out->add_nodes());
  }
}

void AddGpu(const GpuView& view, v1::GpuStatus* out) {
  out->set_ordinal(static_cast<uint32_t>(view.gpu.ordinal));
  out->set_uuid(gpu::UuidText(view.gpu.uuid));
  out->set_name(Printable(view.gpu.name));
  out->set_pci(Printable(view.gpu.pci));
  out->set_memory_bytes(view.gpu.bytes);
  out->set_state(view.state);
  if (view.state != "ready") out->set_why(Printable(view.why));
  out->set_pid(view.pid);
  out->set_restarts(view.restarts);
  out->set_regions(static_cast<uint32_t>(view.regions));
  out->set_region_bytes(view.region_bytes);
  out->set_commands(view.commands);
}

}  // namespace

bool SeesAll(const Peer& peer) { return peer.uid == 0 || peer.uid == ::geteuid(); }

void ToProto(const cluster::PeerTable::Row& row, v1::NodeStatus* node) {
  node->set_name(row.member.name);
  node->set_address(row.member.address);
  node->set_state(std::string(cluster::PeerTable::Name(row.state)));
  node->set_why(row.why);
  node->set_role(std::string(cluster::Name(row.role)));
}

v1::GetStatusResponse Services::GetStatus(const Peer& peer) const {
  v1::GetStatusResponse response;
  response.set_version(kVersion);
  response.set_incarnation(context_.incarnation);
  response.set_pid(::getpid());
  response.set_uptime_seconds(static_cast<double>(NowNs() - started_ns_) / 1e9);
  response.set_sessions(static_cast<uint32_t>(context_.sessions->size()));
  response.set_communicators(static_cast<uint32_t>(context_.communicators->size()));
  response.set_regions(static_cast<uint32_t>(context_.regions->region_count()));
  response.set_region_bytes(context_.regions->total_bytes());
  response.set_memory_limit_bytes(context_.regions->quotas().total_bytes);
  response.set_worker_threads(static_cast<uint32_t>(context_.worker_threads));
  response.set_worker_cpus(topology::FormatCpuList(context_.worker_cpus));
  response.set_operations_served(context_.operations->served.load());
  response.set_operations_failed(context_.operations->failed.load());
  response.set_stopping(stopping());
  const Drain::View drain = drain_.view();
  response.set_state(std::string(Drain::Name(drain.state)));
  response.set_drain_seconds_left(drain.seconds_left);
  response.set_communicators_busy(static_cast<uint32_t>(drain.communicators));
  response.set_drain_cut_off(drain.cut_off);
  response.set_transfers_in_flight(static_cast<uint32_t>(drain.transfers));
  for (const std::shared_ptr<GpuWorker>& worker : context_.gpus->List()) {
    AddGpu(worker->View(), response.add_gpus());
  }
  // Names and addresses of other machines are no tenant's business.
  if (context_.operations->cluster != nullptr && SeesAll(peer)) {
    AddCluster(context_.operations->cluster->GetView(), response.mutable_cluster());
  }
  return response;
}

v1::ListSessionsResponse Services::ListSessions(const Peer& peer) const {
  std::vector<SessionPtr> sessions = context_.sessions->List();
  std::sort(sessions.begin(), sessions.end(),
            [](const SessionPtr& a, const SessionPtr& b) { return a->id < b->id; });
  v1::ListSessionsResponse response;
  for (const SessionPtr& session : sessions) {
    if (!SeesAll(peer) && session->peer.uid != peer.uid) continue;
    v1::SessionInfo* out = response.add_sessions();
    out->set_session_id(session->id);
    out->set_name(session->name);
    out->set_pid(session->peer.pid);
    out->set_uid(session->peer.uid);
    out->set_age_seconds(static_cast<double>(NowNs() - session->opened_ns) / 1e9);
    out->set_regions(static_cast<uint32_t>(context_.regions->List(session->id).size()));
    out->set_region_bytes(context_.regions->SessionBytes(session->id));
    out->set_attached(session->attached.load());
    uint32_t in_flight = session->ring.valid() ? session->ring.outstanding() : 0;
    std::lock_guard lock(session->mutex);
    out->set_communicators(static_cast<uint32_t>(session->memberships.size()));
    for (const auto& [id, operation] : session->operations) in_flight += operation->done() ? 0 : 1;
    out->set_operations_in_flight(in_flight);
  }
  return response;
}

v1::ListCommunicatorsResponse Services::ListCommunicators(const Peer& peer) const {
  v1::ListCommunicatorsResponse response;
  for (const CommunicatorView& view : context_.communicators->View()) {
    if (!SeesAll(peer) && view.key.uid != peer.uid) continue;
    v1::CommunicatorInfo* out = response.add_communicators();
    out->set_communicator_id(view.id);
    out->set_name(view.key.name);
    out->set_job(view.key.job);
    out->set_uid(view.key.uid);
    out->set_epoch(view.epoch);
    out->set_world_size(view.world);
    out->set_state(view.state);
    out->set_failure(view.failure);
    for (const CommunicatorView::Rank& rank : view.ranks) {
      v1::MemberInfo* member = out->add_members();
      member->set_rank(rank.rank);
      member->set_pid(rank.pid);
      member->set_session_id(rank.session_id);
      member->set_last_call(rank.last_call);
    }
  }
  return response;
}

absl::Status Services::Explain(const Peer& peer, const v1::ExplainRequest& request,
                               v1::ExplainResponse* response) const {
  std::shared_ptr<Communicator> communicator;
  for (const std::shared_ptr<Communicator>& c : context_.communicators->List()) {
    if (!SeesAll(peer) && c->key().uid != peer.uid) continue;
    if (c->key().name == request.name() && c->key().job == request.job()) communicator = c;
  }
  if (communicator == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no communicator '", request.name(), "' of job '", request.job(),
                     "' is joined on this node; `shuntctl communicators` lists those that are"));
  }
  SHUNT_ASSIGN_OR_RETURN(const OpKind kind, CollectiveOf(request.operation()));
  CollectiveSpec call{};
  call.kind = kind;
  call.dtype = DataType::kUint8;
  call.root = request.root();
  const int world = communicator->world();
  if (HasRoot(kind) && (call.root < 0 || call.root >= world)) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", call.root, "; expected 0 to ", world - 1));
  }
  call.count = 1;
  call.count = request.bytes() / exchange::BytesOf(call, world);
  response->set_communicator_id(communicator->id());
  response->set_epoch(communicator->epoch());
  response->set_world_size(world);
  response->set_nodes(1);
  if (!communicator->spans_nodes()) return absl::OkStatus();
  SHUNT_ASSIGN_OR_RETURN(const NodeEngine::View view,
                         context_.operations->engine->Describe(communicator->wire_id()));
  response->set_nodes(view.map.nodes());
  const auto ns = [](double seconds) { return static_cast<uint64_t>(std::llround(1e9 * seconds)); };
  response->set_latency_ns(ns(view.policy.model.latency_s));
  response->set_message_ns(ns(view.policy.model.message_overhead_s));
  response->set_bytes_per_second(static_cast<uint64_t>(view.policy.model.bytes_per_s));
  response->set_version(view.version);
  response->set_deterministic(view.pinned);
  if (view.policy.algorithm.has_value()) {
    response->set_algorithm(std::string(Name(*view.policy.algorithm)));
  }
  const exchange::Shape shape = exchange::ChooseShape(call, view.map, view.policy);
  response->set_slices(shape.slices);
  for (const exchange::Candidate& candidate : exchange::Candidates(call, view.map, view.policy)) {
    v1::ExplainCandidate* out = response->add_candidates();
    out->set_algorithm(std::string(Name(candidate.net.algorithm)));
    out->set_seconds(candidate.seconds);
    out->set_chosen(candidate.net.algorithm == shape.net.algorithm);
  }
  return absl::OkStatus();
}

}  // namespace shunt::daemon
