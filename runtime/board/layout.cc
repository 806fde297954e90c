#include "runtime/board/layout.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace shunt::board {
namespace {

constexpr size_t kPage = 4096;
constexpr int kCollectiveSlots = 32;
constexpr int kPairSlots = 4;

constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

int LanesFor(int participants) { return std::min(participants, kMaxLanes); }

size_t SlotBytes(int participants) {
  return (1 + LanesFor(participants) + 2 * static_cast<size_t>(participants)) * kLine;
}

size_t RanksOffset() { return RoundUp(sizeof(Header), kPage); }

// Row, bell and last call of each rank.
size_t CollectivesOffset(int world) {
  return RoundUp(RanksOffset() + 3 * kLine * static_cast<size_t>(world), kPage);
}

size_t PairsOffset(int world) {
  return CollectivesOffset(world) +
         Channel::Bytes(world, kCollectiveSlots, kCollectiveInlineBytes, /*tables=*/true);
}

size_t PairBytes() { return Channel::Bytes(2, kPairSlots, kPairInlineBytes, /*tables=*/false); }

}  // namespace

Channel::Channel(std::byte* base, uint32_t id, int participants, int slots, size_t inline_bytes,
                 bool tables)
    : base_(base),
      slot_base_(base + static_cast<size_t>(participants) * kLine),
      payloads_(base +
                RoundUp(static_cast<size_t>(participants) * kLine + slots * SlotBytes(participants),
                        kPage)),
      tables_(tables ? payloads_ + RoundUp(4 * inline_bytes * participants, kPage) : nullptr),
      slot_bytes_(SlotBytes(participants)),
      inline_bytes_(inline_bytes),
      id_(id),
      participants_(participants),
      slots_(slots),
      lanes_(LanesFor(participants)) {}

size_t Channel::Bytes(int participants, int slots, size_t inline_bytes, bool tables) {
  const size_t p = static_cast<size_t>(participants);
  size_t bytes = RoundUp(p * kLine + slots * SlotBytes(participants), kPage);
  bytes += RoundUp(4 * inline_bytes * p, kPage);
  if (tables) bytes += RoundUp(slots * p * p * sizeof(VRow), kPage);
  return bytes;
}

size_t Board::BytesFor(int world) {
  return PairsOffset(world) + static_cast<size_t>(world) * world * PairBytes();
}

void Board::Initialize(uint64_t communicator_id, uint64_t epoch, const char* name) {
  Header& h = header();
  h.magic = kMagic;
  h.version = kVersion;
  h.world = world_;
  h.communicator_id = communicator_id;
  h.epoch = epoch;
  const std::string_view words = name;
  std::memcpy(h.name, words.data(), std::min(words.size(), sizeof(h.name) - 1));
}

RankRow& Board::row(int rank) const {
  return *reinterpret_cast<RankRow*>(base_ + RanksOffset() + static_cast<size_t>(rank) * kLine);
}

Bell& Board::bell(int rank) const {
  return *reinterpret_cast<Bell*>(base_ + RanksOffset() +
                                  (static_cast<size_t>(world_) + rank) * kLine);
}

LastCall& Board::last_call(int rank) const {
  return *reinterpret_cast<LastCall*>(base_ + RanksOffset() +
                                      (2 * static_cast<size_t>(world_) + rank) * kLine);
}

Channel Board::channel(uint32_t id) const {
  if (id == 0) {
    return Channel(base_ + CollectivesOffset(world_), 0, world_, kCollectiveSlots,
                   kCollectiveInlineBytes, true);
  }
  return Channel(base_ + PairsOffset(world_) + (id - 1) * PairBytes(), id, 2, kPairSlots,
                 kPairInlineBytes, false);
}

}  // namespace shunt::board
