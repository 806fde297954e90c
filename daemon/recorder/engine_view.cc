// How the way to other nodes stands, for people.
#include "daemon/node_engine_state.h"
#include "runtime/core/clock.h"

namespace shunt::daemon {

void NodeEngine::Look(std::function<void(const EngineView&)> seen) {
  Post([this, seen = std::move(seen)] {
    EngineView view;
    for (const auto& [node, id] : ids_) {
      const PeerState& peer = *peers_[id];
      if (!peer.info.has_value()) continue;
      EngineView::Link link{node, transport_->link(id), false, peer.gone};
      link.up = link.state.came_ns != 0;
      view.links.push_back(std::move(link));
    }
    view.flows = pulls_->Progress();
    view.granted_bytes = pulls_->granted_bytes();
    view.grant_limit = pulls_->grant_limit();
    view.now_ns = NowNs();
    seen(view);
  });
}

}  // namespace shunt::daemon
