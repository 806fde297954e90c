// What the blocks of a network plan are in the ranks' buffers.
//
//   all_reduce, reduce, broadcast   a block is a range of the vector
//   all_gather, gather              block p: what the ranks of node p contribute
//   reduce_scatter, scatter         block p: what the ranks of node p get
//   all_to_all(_v)                  block s·P + d: what the ranks of node s have for those of node
//   d
//
// A block's part in one slice is a list of extents, in an order that all nodes agree on; a message
// is the extents of its blocks one after the other. Pure.
#pragma once

#include <cstdint>

#include "runtime/collectives/plan/local_plan.h"
#include "runtime/collectives/plan/net_plan.h"
#include "runtime/exchange/node_map.h"

namespace shunt::exchange {

// An operation as all nodes see it.
struct Shape {
  const NodeMap* map = nullptr;
  CollectiveSpec call{};  // of ranks, as in NCCL
  NetSpec net{};          // of nodes
  uint32_t slices = 1;
};

inline constexpr int32_t kEveryLocalRank = -1;

// `count` elements from `in_element` of the input of `source`, on their way to `out_element` of the
// output of `destination`. kEveryLocalRank: all ranks of a node contribute, or all get it.
struct Extent {
  int32_t source = kEveryLocalRank;
  int32_t destination = kEveryLocalRank;
  uint64_t in_element = 0, out_element = 0;
  uint64_t count = 0;
};

// Counts and places of an all_to_all_v, known for the pairs of which one end is on this node.
class PairTable {
 public:
  virtual ~PairTable() = default;
  struct Entry {
    uint64_t count = 0, in_element = 0, out_element = 0;
  };
  virtual Entry At(int source, int destination) const = 0;
};

// Calls visit(const Extent&) for each extent of `block` in `slice` that is not empty. `pairs` is
// for all_to_all_v only.
template <typename Visit>
void ForEachExtent(const Shape& shape, const PairTable* pairs, uint32_t block, uint32_t slice,
                   Visit visit) {
  const NodeMap& map = *shape.map;
  const uint64_t count = shape.call.count;
  const int32_t root = shape.call.root;
  const auto emit = [&](const Extent& extent) {
    if (extent.count != 0) visit(extent);
  };
  switch (shape.call.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast: {
      const BlockRange whole = BlockRangeOf(shape.net, block, count);
      const BlockRange part = PartOf(whole.count, shape.slices, slice);
      const uint64_t at = whole.first + part.first;
      emit({shape.call.kind == OpKind::kBroadcast ? root : kEveryLocalRank,
            shape.call.kind == OpKind::kReduce ? root : kEveryLocalRank, at, at, part.count});
      return;
    }
    case OpKind::kAllGather:
    case OpKind::kGather: {
      const BlockRange part = PartOf(count, shape.slices, slice);
      for (const int32_t r : map.ranks_of[block]) {
        emit({r, shape.call.kind == OpKind::kGather ? root : kEveryLocalRank, part.first,
              static_cast<uint64_t>(r) * count + part.first, part.count});
      }
      return;
    }
    case OpKind::kReduceScatter:
    case OpKind::kScatter: {
      const BlockRange part = PartOf(count, shape.slices, slice);
      for (const int32_t r : map.ranks_of[block]) {
        emit({shape.call.kind == OpKind::kScatter ? root : kEveryLocalRank, r,
              static_cast<uint64_t>(r) * count + part.first, part.first, part.count});
      }
      return;
    }
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV: {
      const uint32_t nodes = static_cast<uint32_t>(map.nodes());
      for (const int32_t s : map.ranks_of[block / nodes]) {
        for (const int32_t d : map.ranks_of[block % nodes]) {
          PairTable::Entry entry{count, static_cast<uint64_t>(d) * count,
                                 static_cast<uint64_t>(s) * count};
          if (pairs != nullptr) entry = pairs->At(s, d);
          const BlockRange part = PartOf(entry.count, shape.slices, slice);
          emit({s, d, entry.in_element + part.first, entry.out_element + part.first, part.count});
        }
      }
      return;
    }
    case OpKind::kBarrier:
    case OpKind::kSend:
    case OpKind::kRecv:
      return;
  }
}

// Elements of a block's part.
uint64_t ElementsOf(const Shape& shape, const PairTable* pairs, uint32_t block, uint32_t slice);

}  // namespace shunt::exchange
