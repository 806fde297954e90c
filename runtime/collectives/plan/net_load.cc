// What a plan moves, combines and holds, counted along the lists.
#include <algorithm>

#include "runtime/collectives/plan/net_definition.h"
#include "runtime/collectives/plan/net_graph.h"

namespace shunt::net {
namespace {

using Kind = NetStep::Kind;

void Raise(uint32_t* max, uint32_t value) { *max = std::max(*max, value); }

void Raise(NetLoad* max, const NetLoad& load) {
  Raise(&max->sent_blocks, load.sent_blocks);
  Raise(&max->received_blocks, load.received_blocks);
  Raise(&max->sent_messages, load.sent_messages);
  Raise(&max->received_messages, load.received_messages);
  Raise(&max->reduced_blocks, load.reduced_blocks);
}

}  // namespace

void CountLoads(const Graph& graph, NetProof* proof) {
  const NetSpec& spec = graph.spec();
  const bool vectors = CombinesVectors(spec);
  std::vector<uint32_t> last_use(graph.blocks());
  std::vector<bool> live(graph.blocks());
  for (int32_t p = 0; p < graph.everyone(); ++p) {
    const bool aggregates = p >= spec.participants;
    const uint32_t begin = graph.first(p), end = graph.first(p + 1);
    for (uint32_t i = begin; i < end; ++i) {
      for (uint32_t t = graph[i].touch; t < graph[i].touch_end; ++t) last_use[graph.block(t)] = t;
    }
    NetLoad load;
    uint32_t held = 0, held_max = 0;
    for (uint32_t i = begin; i < end; ++i) {
      const Graph::Step& s = graph[i];
      const Kind kind = s.step.kind;
      const uint32_t count = s.touch_end - s.touch;
      Raise(&proof->rounds, s.step.round + 1);
      if (kind == Kind::kSend) {
        load.sent_blocks += count;
        ++load.sent_messages;
      } else if (kind == Kind::kCombine) {
        load.reduced_blocks += count - 1;
      } else {
        load.received_blocks += count;
        ++load.received_messages;
        if (kind == Kind::kRecvReduce) load.reduced_blocks += count;
      }
      for (uint32_t t = s.touch; Writes(kind) && t < s.touch_end; ++t) {
        const uint32_t block = graph.block(t);
        if (live[block] || (HeldAtEnd(spec, p, block) && !vectors)) continue;
        live[block] = true;
        Raise(&held_max, ++held);
        // An aggregator takes its first contribution as it is.
        if (aggregates && kind == Kind::kRecvReduce) --load.reduced_blocks;
      }
      for (uint32_t t = s.touch; t < s.touch_end; ++t) {
        const uint32_t block = graph.block(t);
        if (last_use[block] != t || !live[block]) continue;
        live[block] = false;
        --held;
      }
    }
    Raise(aggregates ? &proof->aggregator : &proof->participant, load);
    if (!aggregates) Raise(&proof->extra_blocks_max, held_max);
  }
}

}  // namespace shunt::net
