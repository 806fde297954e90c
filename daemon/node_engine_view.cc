// What the engine shows to who looks on.
#include "daemon/node_engine_state.h"

namespace shunt::daemon {

std::vector<NodeEngine::LinkView> NodeEngine::Links() const {
  std::vector<LinkView> links;
  const std::lock_guard driving(driving_);
  if (ended_) return links;
  for (const auto& [node, id] : ids_) {
    const PeerState& peer = *peers_[id];
    links.push_back({node, id, peer.connected, peer.measured, {}});
    if (peer.info.has_value()) links.back().counters = transport_->counters(id);
  }
  return links;
}

std::vector<NodeEngine::FlowView> NodeEngine::Flows() const {
  std::vector<FlowView> flows;
  const std::lock_guard driving(driving_);
  if (ended_) return flows;
  for (pull::PullEngine::FlowView& flow : pulls_->View()) {
    std::string node = peers_[flow.peer]->node.name;
    flows.push_back({std::move(flow), std::move(node)});
  }
  return flows;
}

}  // namespace shunt::daemon
