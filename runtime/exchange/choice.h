// Which plan an operation among nodes runs by, and in how many slices: the same on all nodes, for
// it is computed from what all of them know alike.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/collectives/plan/net_cost.h"
#include "runtime/exchange/block_layout.h"

namespace shunt::exchange {

inline constexpr uint32_t kSlicesMax = 4096;
inline constexpr uint64_t kSliceBytes = 256 << 10;

// What the plans' costs count by: all nodes' vectors of an operation, in bytes.
uint64_t BytesOf(const CollectiveSpec& call, int world);

// The plan with the least predicted time. `map` outlives the shape.
Shape ChooseShape(const CollectiveSpec& call, const NodeMap& map, const LinkModel& model);

}  // namespace shunt::exchange
