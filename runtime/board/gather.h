// The daemon's view of an operation that it moves itself: what this node's ranks have called, and
// where their buffers are. The exchange with the other nodes (runtime/exchange), or a GPU worker,
// takes it from here.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "runtime/board/layout.h"
#include "runtime/board/member.h"

namespace shunt::board {

// A copy of what was posted, checked once; nobody can change it after.
struct Gathered {
  CollectiveSpec spec{};  // kSend for a pair
  struct Rank {
    const std::byte* in = nullptr;  // null where the rank has none
    std::byte* out = nullptr;
    Scalar scalar{};
    uint8_t flags = 0;  // PostFlags
  };
  absl::InlinedVector<Rank, 4> ranks;   // by participant
  absl::InlinedVector<VRow, 1> tables;  // all_to_all_v: `world` rows of each participant
};

// Reads the posts of an operation for which all of this node's ranks have called. INVALID_ARGUMENT
// names the rank whose post is bad, FAILED_PRECONDITION two ranks whose calls differ. On a device
// board the addresses are what `resolver` calls so: nothing here looks behind them.
absl::Status Gather(const Board& board, const Channel& channel, uint64_t seq,
                    RegionResolver& resolver, Gathered* gathered);

}  // namespace shunt::board
