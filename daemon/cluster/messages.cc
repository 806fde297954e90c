#include "daemon/cluster/messages.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/address.h"
#include "runtime/core/status.h"

namespace shunt::cluster {
namespace {

absl::Status Wrong(const std::string& words) {
  return absl::FailedPreconditionError(
      absl::StrCat("the coordinator's map of ranks is wrong: ", words));
}

void ToProto(const LinkNumbers& link, v1::LinkNumbers* out) {
  out->set_latency_ns(link.latency_ns);
  out->set_message_ns(link.message_ns);
  out->set_bytes_per_second(link.bytes_per_s);
}

void ToProto(const MappedNode& node, v1::RendezvousNode* out) {
  out->set_name(node.name);
  out->set_incarnation(node.incarnation);
  out->set_control_address(node.address);
}

absl::Status Add(const v1::RendezvousNode& in, std::vector<MappedNode>* nodes) {
  if (!CheckNodeName(in.name()).ok() || in.incarnation() == 0) {
    return Wrong("a node without a usable name and incarnation");
  }
  nodes->push_back({in.name(), in.incarnation(), in.control_address()});
  return absl::OkStatus();
}

// Bounds keep what is computed from them finite; who lies harms the communicators it is in.
LinkNumbers FromProto(const v1::LinkNumbers& in) {
  constexpr uint64_t kNsMax = 10'000'000'000, kRateMax = 10'000'000'000'000;
  return {std::min<uint64_t>(in.latency_ns(), kNsMax), std::min<uint64_t>(in.message_ns(), kNsMax),
          std::min<uint64_t>(in.bytes_per_second(), kRateMax)};
}

}  // namespace

void ToProto(const CommunicatorMap& map, v1::RendezvousMap* out) {
  out->set_wire_id(map.wire_id);
  out->set_epoch(map.epoch);
  out->set_warm(map.warm);
  for (const MappedNode& node : map.nodes) ToProto(node, out->add_nodes());
  for (const MappedNode& node : map.aggregators) ToProto(node, out->add_aggregators());
  for (const MappedRank& rank : map.ranks) {
    out->add_rank_nodes(rank.node);
    out->add_rank_pids(rank.pid);
    out->add_rank_sessions(rank.session);
  }
  ToProto(map.link, out->mutable_link());
}

absl::StatusOr<std::shared_ptr<const CommunicatorMap>> FromProto(const v1::RendezvousMap& in,
                                                                 int32_t world_size) {
  if (in.wire_id() == 0) return Wrong("wire id 0");
  if (in.rank_nodes_size() != world_size || in.rank_pids_size() != world_size ||
      in.rank_sessions_size() != world_size) {
    return Wrong(absl::StrCat(in.rank_nodes_size(), " nodes, ", in.rank_pids_size(), " pids and ",
                              in.rank_sessions_size(), " sessions; expected ", world_size,
                              " of each"));
  }
  auto map = std::make_shared<CommunicatorMap>();
  map->wire_id = in.wire_id();
  map->epoch = in.epoch();
  map->warm = in.warm();
  map->link = FromProto(in.link());
  for (const v1::RendezvousNode& node : in.nodes()) {
    SHUNT_RETURN_IF_ERROR(Add(node, &map->nodes));
  }
  if (in.aggregators_size() > kAggregatorsMax) {
    return Wrong(
        absl::StrCat(in.aggregators_size(), " aggregators; expected at most ", kAggregatorsMax));
  }
  for (const v1::RendezvousNode& node : in.aggregators()) {
    SHUNT_RETURN_IF_ERROR(Add(node, &map->aggregators));
  }
  map->ranks.reserve(static_cast<size_t>(world_size));
  for (int i = 0; i < world_size; ++i) {
    const int32_t node = in.rank_nodes(i);
    if (node < 0 || node >= in.nodes_size()) {
      return Wrong(absl::StrCat("rank ", i, " is on node ", node, " of ", in.nodes_size()));
    }
    map->ranks.push_back({node, in.rank_pids(i), in.rank_sessions(i)});
  }
  return map;
}

void ToProto(const RendezvousKey& key, const Registration& registration,
             v1::RendezvousRequest* out) {
  out->set_uid(key.uid);
  out->set_job(key.job);
  out->set_name(key.name);
  out->set_world_size(registration.terms.world_size);
  out->set_algorithm(registration.terms.algorithm);
  out->set_deterministic(registration.terms.deterministic);
  out->set_device(registration.terms.device);
  ToProto(registration.link, out->mutable_link());
  out->set_registration(registration.id);
  out->set_known_epoch(registration.known_epoch);
  for (const RankInfo& rank : registration.ranks) {
    v1::RankRegistration* const to = out->add_ranks();
    to->set_rank(rank.rank);
    to->set_pid(rank.pid);
    to->set_session(rank.session);
  }
}

void FromProto(const v1::RendezvousRequest& in, RendezvousKey* key, Registration* registration) {
  *key = {in.uid(), in.job(), in.name()};
  registration->node = in.caller().node();
  registration->incarnation = in.caller().incarnation();
  registration->address = in.caller().control_address();
  registration->id = in.registration();
  registration->terms = {in.world_size(), in.algorithm(), in.deterministic(), in.device()};
  registration->link = FromProto(in.link());
  registration->known_epoch = in.known_epoch();
  registration->ranks.clear();
  for (const v1::RankRegistration& rank : in.ranks()) {
    registration->ranks.push_back({rank.rank(), rank.pid(), rank.session()});
  }
}

void ToProto(const CommunicatorMap& map, v1::OpenSpanRequest* out) {
  out->set_wire_id(map.wire_id);
  for (const MappedNode& node : map.nodes) ToProto(node, out->add_nodes());
  for (const MappedRank& rank : map.ranks) out->add_rank_nodes(rank.node);
}

absl::StatusOr<CommunicatorMap> FromProto(const v1::OpenSpanRequest& in) {
  CommunicatorMap map;
  map.wire_id = in.wire_id();
  if (map.wire_id == 0) return Wrong("wire id 0");
  for (const v1::RendezvousNode& node : in.nodes()) {
    SHUNT_RETURN_IF_ERROR(Add(node, &map.nodes));
  }
  std::vector<bool> has_rank(map.nodes.size());
  for (const int32_t node : in.rank_nodes()) {
    if (node < 0 || node >= in.nodes_size()) {
      return Wrong(absl::StrCat("a rank is on node ", node, " of ", in.nodes_size()));
    }
    has_rank[static_cast<size_t>(node)] = true;
    map.ranks.push_back({node, 0, ""});
  }
  if (map.nodes.size() < 2 ||
      std::find(has_rank.begin(), has_rank.end(), false) != has_rank.end()) {
    return Wrong(absl::StrCat(map.nodes.size(),
                              " nodes; expected 2 or more, each with a rank of the communicator"));
  }
  return map;
}

}  // namespace shunt::cluster
