// Plans of collectives among the ranks of one node, whose buffers one pass reads and writes in
// place.
//
// A plan is a list of steps in loop form: StepAt() computes any of them in O(1) and nobody stores a
// list. Steps may run at the same time and in any order: prove.h shows that none writes what
// another reads or writes. Pure functions, no I/O; units are elements and blocks, a block being
// `count` elements.
//
//                 input blocks per rank             output blocks per rank
//   all_gather    [ own ]                           [ 0 | 1 | ... | world-1 ]    block r: from rank
//   r reduce_scatter[ 0 | 1 | ... | world-1 ]         [ own ]                      block r: for
//   rank r all_to_all    [ 0 | 1 | ... | world-1 ]         [ 0 | 1 | ... | world-1 ]    block r: to
//   / from rank r
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/core/types.h"

namespace shunt {

// What every member of a communicator must agree on.
//
// `count` is NCCL's argument, in elements: the whole buffer for all_reduce, reduce, broadcast, send
// and recv; sendcount for all_gather; recvcount for reduce_scatter; one block for all_to_all,
// gather and scatter. For all_to_all_v it is unused (the executor looks the pair's count and
// offsets up) and 0 for barrier. dtype matters always, redop only if Reduces(kind), root only if
// HasRoot(kind).
struct CollectiveSpec {
  OpKind kind;
  DataType dtype;
  Redop redop;
  int32_t root;
  uint64_t count;
  bool operator==(const CollectiveSpec&) const = default;
};

// One line of a plan. The element offset of a block in its buffer is block * count.
//
// If Reduces(kind), the step combines, in rank order, the block `src_block` of every source's input
// and writes the result to block `dst_block` of every destination's output. Otherwise src_count is
// 1 and the block is copied. For all_to_all_v the blocks index the source's send counts (by
// destination) and the destination's receive counts (by source).
struct LocalStep {
  int32_t src_first, src_count;  // ranks that are read: [src_first, src_first + src_count)
  int32_t dst_first, dst_count;  // ranks that are written
  uint32_t src_block, dst_block;
};

// The largest world of a local plan; keeps world * world in 32 bits.
inline constexpr int kWorldMax = 65535;

// Ok if the call makes sense for `world` ranks (2 for send and recv, see StepAt). Otherwise
// InvalidArgument with a message that starts with the operation's name and says what was seen and
// what is expected. Every other function here requires a valid spec.
absl::Status ValidateSpec(const CollectiveSpec& spec, int world);

// Blocks in rank's input and output; 0 if it has none. 0 <= rank < world.
uint32_t InputBlocks(const CollectiveSpec& spec, int world, int rank);
uint32_t OutputBlocks(const CollectiveSpec& spec, int world, int rank);

// Number of steps; 0 for barrier.
uint32_t StepCount(const CollectiveSpec& spec, int world);

// Step `index` of StepCount(). For send and recv, a channel between two participants is a world of
// two: participant 0 sends and 1 receives.
//
// all_to_all: step s * world + k goes from rank s to rank (s + k) % world, so that executors which
// start at different sources write to different destinations.
LocalStep StepAt(const CollectiveSpec& spec, int world, uint32_t index);

enum class Placement : uint8_t {
  kDisjoint,   // input and output do not touch
  kInPlace,    // exactly NCCL's in-place placement, for an operation that allows it
  kForbidden,  // any other overlap
};

// How one rank's buffers lie, given the byte addresses (or offsets in one region) of both. Empty
// buffers are disjoint from everything. In place means: in == out for all_reduce, reduce (at the
// root) and broadcast (at the root); in == out + rank blocks for all_gather, out == in + rank
// blocks for reduce_scatter, in == out + root blocks for gather and out == in + root blocks for
// scatter, both at the root. all_to_all, all_to_all_v (whose sizes are not known here: compare them
// yourself), send and recv have none.
Placement PlacementOf(const CollectiveSpec& spec, int world, int rank, uint64_t in, uint64_t out);

}  // namespace shunt
