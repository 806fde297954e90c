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
//   kCombine       no peer: combine these blocks, in their order, into the output
//
// A send of one participant and the receive of its peer match in the order of the two lists (k-th
// send from a to b with k-th receive at b from a), and cover the same blocks in the same order.
//
// What a kRecvReduce receives lies in scratch until it is combined, so it may arrive while the
// block is still being sent; it needs room for one arrival per block, and no plan depends on more.
// With that, no send needs a buffer between sender and receiver (net_prove.h shows both).
//
// Pure functions, no I/O. How blocks meet is fixed by the plan: the same inputs give the same bits,
// and an all_reduce gives all participants the same bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/types.h"

namespace shunt {

enum class Algorithm : uint8_t {
  kRing = 0,               // all but all_to_all, gather, scatter; broadcast and reduce are chains
  kDoubleTree = 1,         // all_reduce, broadcast, reduce
  kHalvingDoubling = 2,    // all_reduce, reduce_scatter, all_gather
  kRecursiveDoubling = 3,  // all_reduce of few bytes: whole vectors
  kBruck = 4,              // all_gather, all_to_all of few bytes
  kPat = 5,                // all_gather, reduce_scatter
  kPairwise = 6,           // all but broadcast, reduce; no receiver has two senders in one round
  kDirect = 7,             // all: each sends to each at once
  kAggregated = 8,         // all_reduce, reduce, reduce_scatter: others add and hand out
  kBinomial = 9,           // broadcast, reduce, gather, scatter of few bytes
  kPatBounded = 10,        // all_gather, reduce_scatter: one block a message, few blocks held
};
inline constexpr int kAlgorithmCount = 11;

constexpr bool IsValid(Algorithm a) { return static_cast<int>(a) < kAlgorithmCount; }
// Lower-case names as users write them: "ring", "double_tree". "unknown" for other values.
std::string_view Name(Algorithm a);
// The algorithm of that name. InvalidArgument lists the names.
absl::StatusOr<Algorithm> AlgorithmOf(std::string_view name);

// One collective among `participants` nodes. A barrier is an all_reduce of nothing; all_to_all_v is
// an all_to_all whose blocks differ in size.
//
//   kind                blocks                holds at first          must hold at the end
//   all_reduce          BlockCount            own share of every one  every one, combined
//   reduce              BlockCount            own share of every one  root: every one, combined
//   reduce_scatter      participants          own share of every one  block p, combined
//   broadcast           BlockCount            root: every one         every one
//   scatter             participants          root: every one         block p
//   all_gather, gather  participants          block p                 all / root: every one
//   all_to_all          participants squared  (p, *)                  (*, p)
//
// (s, d) is block s * participants + d. By kBruck a participant needs one block of each d - s
// (modulo participants) at a time: a slot for each, and room for what arrives while a slot is still
// being sent. In an all_reduce by kDirect block p is the whole vector of participant p: they are
// gathered, and kCombine folds them in rank order.
//
// With kAggregated, `aggregators` further participants follow, numbered from `participants`: they
// have no data of their own, and a kRecvReduce into a block they do not hold yet is a kRecv.
struct NetSpec {
  OpKind kind = OpKind::kBarrier;
  Algorithm algorithm = Algorithm::kRing;
  int32_t participants = 1;
  int32_t root = 0;         // of kinds that have one
  int32_t aggregators = 0;  // 0 without kAggregated
};

inline constexpr int kParticipantsMax = 65535;  // keeps all_to_all's blocks in 32 bits

// Blocks first, first + stride, … (count of them), each modulo the plan's BlockCount.
struct BlockSet {
  uint32_t first = 0, count = 0, stride = 1;
};

struct NetStep {
  enum class Kind : uint8_t { kSend, kRecv, kRecvReduce, kCombine };
  Kind kind = Kind::kSend;
  // Of a kRecvReduce: what the peer sends is the left operand, the block here the right one; else
  // the other way round. It matters to the sign of zero in min and max, for one.
  bool peer_first = false;
  int32_t peer = 0;  // of a kCombine: the participant itself
  BlockSet blocks;   // Bruck's all_to_all: count only, ForEachBlock knows which
  // The same at both ends of a message, and later than that of every message whose contents it
  // carries on. It need not rise along the list. An executor may do more than one round at a time,
  // or finish one before it begins the next: no step waits for one of a later round.
  uint32_t round = 0;
};

// OK if there is such a plan; InvalidArgument says what was seen and what is expected. Every
// function below requires a valid spec.
absl::Status ValidateNetSpec(const NetSpec& spec);
// True if the algorithm has a plan for the kind.
bool Supports(Algorithm algorithm, OpKind kind);

uint32_t BlockCount(const NetSpec& spec);
// Part of a vector of `elements` that block `block` is, for all_reduce, reduce and broadcast. The
// sizes of a vector's blocks differ by at most one element.
struct BlockRange {
  uint64_t first, count;
};
// Part `index` of `parts` of [0, elements): the first ones have one element more, where they do not
// divide.
constexpr BlockRange PartOf(uint64_t elements, uint64_t parts, uint64_t index) {
  const uint64_t each = elements / parts, longer = elements % parts;
  return {each * index + (index < longer ? index : longer), each + (index < longer ? 1 : 0)};
}
BlockRange BlockRangeOf(const NetSpec& spec, uint32_t block, uint64_t elements);

// Steps of one participant (or aggregator). Step `index`, below the count, is computed in O(log
// participants) at most; nobody stores a list. One participant alone has none.
uint32_t NetStepCount(const NetSpec& spec, int participant);
NetStep NetStepAt(const NetSpec& spec, int participant, uint32_t index);

// Calls visit(block) for each block of the step, in the order in which they travel.
template <typename Visit>
void ForEachBlock(const NetSpec& spec, int participant, const NetStep& step, Visit visit);

}  // namespace shunt

#include "runtime/collectives/plan/net_plan-inl.h"
