// Where an exchange's data lies: in the ranks' inputs and outputs, or in scratch memory.
#include <algorithm>
#include <functional>

#include "runtime/exchange/exchange.h"

namespace shunt::exchange {

bool Exchange::OutputsOverlapInputs() const {
  const CollectiveSpec& call = setup_.shape.call;
  if (call.kind == OpKind::kAllToAllV) return true;  // extents are the ranks' own affair
  const NodeMap& map = *setup_.shape.map;
  const size_t block_bytes = call.count * element_bytes_;
  for (size_t i = 0; i < setup_.local.size(); ++i) {
    const std::byte* in = setup_.local[i].in;
    if (in == nullptr) continue;
    const int reader = map.ranks_of[setup_.node][i];
    const size_t in_bytes = InputBlocks(call, map.world(), reader) * block_bytes;
    for (size_t o = 0; o < setup_.local.size(); ++o) {
      const std::byte* out = setup_.local[o].out;
      if (out == nullptr) continue;
      const int writer = map.ranks_of[setup_.node][o];
      const size_t out_bytes = OutputBlocks(call, map.world(), writer) * block_bytes;
      const std::less<const std::byte*> before;
      if (before(in, out + out_bytes) && before(out, in + in_bytes)) return true;
    }
  }
  return false;
}

const std::byte* Exchange::Input(int local, const Extent& extent) const {
  return setup_.local[local].in + extent.in_element * element_bytes_;
}

void Exchange::Outputs(const Extent& extent, absl::InlinedVector<std::byte*, 8>* out) const {
  out->clear();
  const NodeMap& map = *setup_.shape.map;
  if (extent.destination == kEveryLocalRank) {
    for (const LocalRank& rank : setup_.local) {
      if (rank.out != nullptr) out->push_back(rank.out + extent.out_element * element_bytes_);
    }
  } else if (map.node_of[extent.destination] == setup_.node) {
    std::byte* base = setup_.local[map.index_on_node[extent.destination]].out;
    if (base != nullptr) out->push_back(base + extent.out_element * element_bytes_);
  }
}

size_t Exchange::BytesOf(uint32_t block, uint32_t slice) const {
  return ElementsOf(setup_.shape, setup_.pairs, block, slice) * element_bytes_;
}

size_t Exchange::MessageBytes(const Slice& slice, uint32_t step) const {
  size_t bytes = 0;
  ForEachBlock(setup_.shape.net, setup_.node, plan_[step],
               [&](uint32_t block) { bytes += BytesOf(block, slice.index); });
  return bytes;
}

Exchange::Buffer Exchange::Take(size_t bytes) {
  return bytes == 0 ? Buffer() : Buffer{pool_->Take(bytes), bytes};
}

void Exchange::Give(Buffer& buffer) {
  if (buffer.bytes != 0) pool_->Give(buffer.data, buffer.bytes);
  buffer = Buffer();
}

// True if the node's own ranks contribute to the block from the start.
bool Exchange::Holds(uint32_t block) const {
  if (setup_.local.empty()) return false;
  if (program_.combines) return block == static_cast<uint32_t>(setup_.node);
  bool holds = false;
  const NodeMap& map = *setup_.shape.map;
  ForEachExtent(setup_.shape, setup_.pairs, block, 0, [&](const Extent& extent) {
    holds = extent.source == kEveryLocalRank || map.node_of[extent.source] == setup_.node;
  });
  return holds;
}

void Exchange::Materialise(Slice& slice, uint32_t block, Value& value) {
  const CollectiveSpec& call = setup_.shape.call;
  const bool premul = call.redop == Redop::kPremulSum;
  value.scratch = Take(BytesOf(block, slice.index));
  value.where = Where::kScratch;
  absl::InlinedVector<const std::byte*, 8> srcs(setup_.local.size());
  absl::InlinedVector<Scalar, 8> scalars;
  for (const LocalRank& rank : setup_.local) scalars.push_back(rank.scalar);
  std::byte* at = value.scratch.data;
  ForEachExtent(setup_.shape, setup_.pairs, block, slice.index, [&](const Extent& extent) {
    for (size_t i = 0; i < srcs.size(); ++i) srcs[i] = Input(static_cast<int>(i), extent);
    const Redop redop = call.redop == Redop::kAvg ? Redop::kSum : call.redop;
    ReduceInto({call.dtype, redop, 1, StorePolicy::kTemporal}, srcs,
               absl::MakeConstSpan(scalars.data(), premul ? scalars.size() : 0),
               absl::MakeConstSpan(&at, 1), extent.count);
    at += extent.count * element_bytes_;
  });
}

void Exchange::PlaceOwn(Slice& slice) {
  const NetSpec& net = setup_.shape.net;
  const CollectiveSpec& call = setup_.shape.call;
  const NodeMap& map = *setup_.shape.map;
  if (setup_.local.empty() || call.kind == OpKind::kBarrier) return;
  absl::InlinedVector<std::byte*, 8> outs;
  absl::InlinedVector<const std::byte*, 8> srcs;
  absl::InlinedVector<Scalar, 8> scalars;
  for (const LocalRank& rank : setup_.local) scalars.push_back(rank.scalar);
  const auto place = [&](uint32_t block) {
    if (program_.combines || program_.last_recv.contains(block)) return;
    wrote_outputs_ = true;
    ForEachExtent(setup_.shape, setup_.pairs, block, slice.index, [&](const Extent& extent) {
      Outputs(extent, &outs);
      if (outs.empty()) return;
      if (extent.source != kEveryLocalRank) {
        if (map.node_of[extent.source] != setup_.node) return;
        CopyInto(Input(map.index_on_node[extent.source], extent), outs,
                 extent.count * element_bytes_, StorePolicy::kTemporal);
        return;
      }
      srcs.clear();
      for (size_t i = 0; i < setup_.local.size(); ++i) {
        srcs.push_back(Input(static_cast<int>(i), extent));
      }
      const bool premul = call.redop == Redop::kPremulSum;
      ReduceInto({call.dtype, call.redop, map.world(), StorePolicy::kTemporal}, srcs,
                 absl::MakeConstSpan(scalars.data(), premul ? scalars.size() : 0), outs,
                 extent.count);
    });
  };
  if (call.kind == OpKind::kAllToAll || call.kind == OpKind::kAllToAllV) {
    // The only block of this node that does not travel.
    place(static_cast<uint32_t>(setup_.node) * static_cast<uint32_t>(map.nodes()) +
          static_cast<uint32_t>(setup_.node));
    return;
  }
  for (uint32_t block = 0; block < BlockCount(net); ++block) place(block);
}

// The memory of a block's present value, piece by piece.
void Exchange::Pieces(Slice& slice, uint32_t block,
                      std::vector<absl::Span<const std::byte>>* pieces) {
  const auto add = [pieces](const std::byte* data, size_t bytes) {
    if (bytes == 0) return;
    if (!pieces->empty() && pieces->back().data() + pieces->back().size() == data) {
      pieces->back() = absl::MakeConstSpan(pieces->back().data(), pieces->back().size() + bytes);
    } else {
      pieces->push_back(absl::MakeConstSpan(data, bytes));
    }
  };
  auto it = slice.values.find(block);
  if (it == slice.values.end()) {
    const bool alone = setup_.local.size() == 1 && setup_.shape.call.redop != Redop::kPremulSum;
    if (!reduces_ || alone) {
      const NodeMap& map = *setup_.shape.map;
      ForEachExtent(setup_.shape, setup_.pairs, block, slice.index, [&](const Extent& extent) {
        const int local = extent.source == kEveryLocalRank ? 0 : map.index_on_node[extent.source];
        add(Input(local, extent), extent.count * element_bytes_);
      });
      return;
    }
    it = slice.values.emplace(block, Value()).first;
    Materialise(slice, block, it->second);
  }
  if (it->second.where == Where::kScratch) {
    add(it->second.scratch.data, BytesOf(block, slice.index));
    return;
  }
  absl::InlinedVector<std::byte*, 8> outs;
  ForEachExtent(setup_.shape, setup_.pairs, block, slice.index, [&](const Extent& extent) {
    Outputs(extent, &outs);
    add(outs.front(), extent.count * element_bytes_);
  });
}

// True if the message is one piece of one output, where it may go at once.
bool Exchange::OneOutputPiece(Slice& slice, uint32_t step, absl::Span<std::byte>* piece) {
  std::byte* begin = nullptr;
  size_t bytes = 0;
  bool one = true;
  absl::InlinedVector<std::byte*, 8> outs;
  ForEachBlock(setup_.shape.net, setup_.node, plan_[step], [&](uint32_t block) {
    if (!one || !Final(step, block)) {
      one = false;
      return;
    }
    ForEachExtent(setup_.shape, setup_.pairs, block, slice.index, [&](const Extent& extent) {
      Outputs(extent, &outs);
      if (outs.empty() || (begin != nullptr && outs.front() != begin + bytes)) {
        one = false;
        return;
      }
      if (begin == nullptr) begin = outs.front();
      bytes += extent.count * element_bytes_;
    });
  });
  *piece = absl::MakeSpan(begin, bytes);
  return one && bytes != 0;
}

}  // namespace shunt::exchange
