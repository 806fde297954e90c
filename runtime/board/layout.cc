#include "runtime/board/layout.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace shunt::board {
namespace {

constexpr size_t kPage = 4096;
constexpr int kCollectiveSlots = 32;
// Who calls on a stream runs far ahead of the GPU.
constexpr int kDeviceCollectiveSlots = 256;
constexpr int kPairSlots = 4;

constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

int LanesFor(int participants) { return std::min(participants, kMaxLanes); }

size_t SlotBytes(int participants) {
  return (1 + LanesFor(participants) + 2 * static_cast<size_t>(participants)) * kLine;
}

size_t RanksOffset() { return RoundUp(sizeof(Header), kPage); }

// After row, bell and last call of each rank.
size_t TalliesOffset(int ranks) { return RanksOffset() + 3 * kLine * static_cast<size_t>(ranks); }

size_t CollectivesOffset(int ranks) {
  return RoundUp(TalliesOffset(ranks) + sizeof(Tally) * static_cast<size_t>(ranks), kPage);
}

Channel::Geometry CollectiveGeometry(const BoardShape& shape) {
  return {shape.ranks, shape.device ? kDeviceCollectiveSlots : kCollectiveSlots,
          kCollectiveInlineBytes, shape.world};
}

Channel::Geometry PairGeometry(int participants) {
  return {participants, kPairSlots, kPairInlineBytes, 0};
}

size_t PairsOffset(const BoardShape& shape) {
  return CollectivesOffset(shape.ranks) + Channel::Bytes(CollectiveGeometry(shape));
}

size_t RemotePairsOffset(const BoardShape& shape) {
  const auto n = static_cast<size_t>(shape.ranks);
  return PairsOffset(shape) + n * n * Channel::Bytes(PairGeometry(2));
}

}  // namespace

int BoardShape::RankOf(int number) const {
  if (numbers == nullptr) return number < ranks ? number : -1;
  const int32_t* const end = numbers + ranks;
  const int32_t* const at = std::lower_bound(numbers, end, number);
  return at != end && *at == number ? static_cast<int>(at - numbers) : -1;
}

Channel::Channel(std::byte* base, uint32_t id, const Geometry& geometry)
    : base_(base),
      slot_base_(base + static_cast<size_t>(geometry.participants) * kLine),
      payloads_(base + RoundUp(static_cast<size_t>(geometry.participants) * kLine +
                                   geometry.slots * SlotBytes(geometry.participants),
                               kPage)),
      tables_(geometry.table_rows != 0
                  ? payloads_ + RoundUp(4 * geometry.inline_bytes * geometry.participants, kPage)
                  : nullptr),
      slot_bytes_(SlotBytes(geometry.participants)),
      inline_bytes_(geometry.inline_bytes),
      id_(id),
      participants_(geometry.participants),
      slots_(geometry.slots),
      lanes_(LanesFor(geometry.participants)),
      table_rows_(geometry.table_rows) {}

size_t Channel::Bytes(const Geometry& geometry) {
  const size_t p = static_cast<size_t>(geometry.participants);
  size_t bytes = RoundUp(p * kLine + geometry.slots * SlotBytes(geometry.participants), kPage);
  bytes += RoundUp(4 * geometry.inline_bytes * p, kPage);
  bytes += RoundUp(geometry.slots * p * geometry.table_rows * sizeof(VRow), kPage);
  return bytes;
}

size_t Board::BytesFor(const BoardShape& shape) {
  const size_t remote =
      shape.spans_nodes() ? 2 * static_cast<size_t>(shape.ranks) * static_cast<size_t>(shape.world)
                          : 0;
  return RemotePairsOffset(shape) + remote * Channel::Bytes(PairGeometry(1));
}

void Board::Initialize(uint64_t communicator_id, uint64_t epoch, const char* name) {
  Header& h = header();
  h.magic = kMagic;
  h.version = kVersion;
  h.world = shape_.world;
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
                                  (static_cast<size_t>(shape_.ranks) + rank) * kLine);
}

LastCall& Board::last_call(int rank) const {
  return *reinterpret_cast<LastCall*>(base_ + RanksOffset() +
                                      (2 * static_cast<size_t>(shape_.ranks) + rank) * kLine);
}

Tally& Board::tally(int rank) const {
  return *reinterpret_cast<Tally*>(base_ + TalliesOffset(shape_.ranks) +
                                   static_cast<size_t>(rank) * sizeof(Tally));
}

Channel Board::channel(uint32_t id) const {
  if (id == 0)
    return Channel(base_ + CollectivesOffset(shape_.ranks), 0, CollectiveGeometry(shape_));
  if (id >= remote_pairs_begin()) {
    const size_t index = id - remote_pairs_begin();
    return Channel(base_ + RemotePairsOffset(shape_) + index * Channel::Bytes(PairGeometry(1)), id,
                   PairGeometry(1));
  }
  return Channel(base_ + PairsOffset(shape_) + (id - 1) * Channel::Bytes(PairGeometry(2)), id,
                 PairGeometry(2));
}

Board::Pair Board::PairOf(uint32_t channel) const {
  const auto n = static_cast<uint32_t>(shape_.ranks);
  if (channel < remote_pairs_begin()) {
    const uint32_t pair = channel - 1;
    return {shape_.Number(static_cast<int>(pair / n)), shape_.Number(static_cast<int>(pair % n)),
            true, true};
  }
  const uint32_t index = channel - remote_pairs_begin();
  const auto world = static_cast<uint32_t>(shape_.world);
  const uint32_t row = index / world;
  const int here = shape_.Number(static_cast<int>(row % n));
  const int there = static_cast<int>(index % world);
  return row < n ? Pair{here, there, true, false} : Pair{there, here, false, true};
}

int Board::RankOf(uint32_t channel, int participant) const {
  if (channel == 0) return participant;
  const auto n = static_cast<uint32_t>(shape_.ranks);
  if (channel < remote_pairs_begin()) {
    const uint32_t pair = channel - 1;
    return static_cast<int>(participant == 0 ? pair / n : pair % n);
  }
  return static_cast<int>((channel - remote_pairs_begin()) / static_cast<uint32_t>(shape_.world) %
                          n);
}

int Board::RoleOf(uint32_t channel, int participant) const {
  if (channel == 0) return shape_.Number(participant);
  if (channel < remote_pairs_begin()) return participant;
  return PairOf(channel).source_here ? 0 : 1;
}

}  // namespace shunt::board
