// What is under way, for people.
#include <algorithm>
#include <numeric>

#include "runtime/pull/pull_engine.h"

namespace shunt::pull {

std::vector<PullEngine::FlowProgress> PullEngine::Progress() const {
  std::vector<FlowProgress> views;
  for (const auto& [id, flow] : flows_) {
    const auto bytes = [&ask = flow->ask](uint32_t slices) {
      return std::min<uint64_t>(ask.bytes, uint64_t{slices} * ask.slice_bytes);
    };
    views.push_back({id, flow->peer, flow->source, bytes(flow->posted), bytes(flow->done),
                     flow->WantsToPost() && !MayPost(*flow)});
  }
  for (const auto& [id, peer] : peers_) {
    for (auto& queue : peer->waiting) {
      queue.ForEach([&, to = id](const Waiting& waiting) {
        views.push_back({waiting.id, to, waiting.outgoing.ask.push, 0, 0, true});
      });
    }
  }
  return views;
}

uint64_t PullEngine::granted_bytes() const {
  return std::accumulate(granted_.begin(), granted_.end(), uint64_t{0});
}

}  // namespace shunt::pull
