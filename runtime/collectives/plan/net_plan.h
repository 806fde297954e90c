// Plans of collectives among nodes: what each participant sends and receives, as pure data.
//
// The data is a vector of blocks. A plan is, for each participant, a list of steps; each names a
// peer and a set of blocks. Its meaning is that of the list run in order, and two steps depend on
// one another only where they touch the same block: an executor may run all others at once. It cuts
// every block into slices and runs the plan for several slices at a time, which fills the links.
//
//   kSend          send these blocks to the peer
//   kRecv          replace these blocks by what the peer sends
//   kRecvReduce    combine what the peer sends into these blocks
//
// A send of one participant and the receive of its peer match in the order of the two lists (k-th
// send from a to b with k-th receive at b from a), and cover the same blocks in the same order.
// Pure functions, no I/O.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/core/types.h"

namespace shunt {

enum class Algorithm : uint8_t {
  kRing = 0,
  kDoubleTree = 1,         // all_reduce, broadcast, reduce
  kHalvingDoubling = 2,    // all_reduce, reduce_scatter, all_gather
  kRecursiveDoubling = 3,  // all_reduce of few bytes: whole vectors
  kBruck = 4,              // all_gather, all_to_all of few bytes
  kPat = 5,                // all_gather, reduce_scatter
  kPairwise = 6,           // all_to_all, gather, scatter
  kDirect = 7,             // each sends to each at once: one step
  kAggregated = 8,         // through participants that only add and hand out
};
inline constexpr int kAlgorithmCount = 9;

// Lower-case names as users write them: "ring", "double_tree". "unknown" for other values.
std::string_view Name(Algorithm a);

// One collective among `participants` nodes. The kinds are all_reduce, reduce, broadcast,
// all_gather, reduce_scatter, gather, scatter, all_to_all; a barrier is an all_reduce of nothing.
//
//   kind                     blocks                  holds at first          must hold at the end
//   all_reduce               BlockCount              own share of every one  every one, summed
//   reduce, broadcast        BlockCount              all / root: all         root: all summed / all
//   all_gather, gather       participants            block p                 all / root: all
//   reduce_scatter, scatter  participants            all / root: all         block p, summed /
//   block p all_to_all               participants squared    (p, *)                  (*, p) block
//   (s, d) is s·P + d
//
// With kAggregated, `aggregators` further participants follow, numbered from `participants`: they
// have no data of their own, and a kRecvReduce into a block they do not hold yet is a kRecv.
struct NetSpec {
  OpKind kind = OpKind::kBarrier;
  Algorithm algorithm = Algorithm::kRing;
  int32_t participants = 1;
  int32_t root = 0;
  int32_t aggregators = 0;
};

// Blocks first, first + stride, … (count of them), each modulo the plan's BlockCount.
struct BlockSet {
  uint32_t first = 0, count = 0, stride = 1;
};

struct NetStep {
  enum class Kind : uint8_t { kSend, kRecv, kRecvReduce };
  Kind kind = Kind::kSend;
  int32_t peer = 0;
  // For all algorithms but Bruck's all_to_all, whose sets ForEachBlock knows.
  BlockSet blocks;
  uint32_t round = 0;  // steps of one round may overlap; for drawings and cost models
};

// OK if there is such a plan; InvalidArgument says what was seen and what is expected.
absl::Status ValidateNetSpec(const NetSpec& spec);
// True if the algorithm has a plan for the kind.
bool Supports(Algorithm algorithm, OpKind kind);

uint32_t BlockCount(const NetSpec& spec);
// Steps of one participant. Step `index` is computed in O(log participants) at most; nobody stores
// a list.
uint32_t NetStepCount(const NetSpec& spec, int participant);
NetStep NetStepAt(const NetSpec& spec, int participant, uint32_t index);

// Calls visit(block) for each block of the step, in the order in which they travel.
template <typename Visit>
void ForEachBlock(const NetSpec& spec, int participant, const NetStep& step, Visit visit);

}  // namespace shunt
