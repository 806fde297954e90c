#include <unistd.h>

#include <algorithm>

#include "daemon/services.h"
#include "daemon/version.h"

namespace shunt::daemon {
namespace {

bool SeesAll(const Peer& peer) { return peer.uid == 0 || peer.uid == ::geteuid(); }

}  // namespace

v1::GetStatusResponse Services::GetStatus(const Peer&) const {
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
  return response;
}

}  // namespace shunt::daemon
