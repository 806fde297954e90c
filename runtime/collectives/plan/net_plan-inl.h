// The template of net_plan.h. Include that one.
#pragma once

#include <cstdint>

#include "runtime/collectives/plan/net_plan.h"

namespace shunt {

template <typename Visit>
void ForEachBlock(const NetSpec& spec, int participant, const NetStep& step, Visit visit) {
  if (spec.kind == OpKind::kAllToAll && spec.algorithm == Algorithm::kBruck) {
    // Slot i of a participant is the block that has i ranks to go in all. In round k the slots
    // whose bit k is set move on by 2^k; the lower bits say how far they have come already.
    const uint32_t n = static_cast<uint32_t>(spec.participants);
    const uint32_t bit = 1u << step.round;
    const auto sender =
        static_cast<uint32_t>(step.kind == NetStep::Kind::kSend ? participant : step.peer);
    for (uint32_t i = bit; i < n; i = (i + 1) | bit) {
      const uint32_t source = (sender + n - (i & (bit - 1))) % n;
      visit(source * n + (source + i) % n);
    }
    return;
  }
  // Blocks and strides are below 2^32, their sums below 2^33.
  const uint64_t blocks = BlockCount(spec);
  uint64_t block = step.blocks.first % blocks;
  for (uint32_t i = 0; i < step.blocks.count; ++i) {
    visit(static_cast<uint32_t>(block));
    block = (block + step.blocks.stride) % blocks;
  }
}

}  // namespace shunt
