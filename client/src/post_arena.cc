#include "client/src/post_arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/core/status.h"

namespace shunt::client {
namespace {

// Blocks of different threads share no cache line.
constexpr size_t kAlign = 64;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

PostArena::PostArena(size_t region_bytes, Allocate allocate, Free free)
    : region_bytes_(region_bytes), allocate_(std::move(allocate)), free_(std::move(free)) {}

bool PostArena::TakeFrom(Chunk* chunk, size_t bytes, Block* block) {
  for (auto hole = chunk->holes.begin(); hole != chunk->holes.end(); ++hole) {
    const auto [offset, hole_bytes] = *hole;
    if (hole_bytes < bytes) continue;
    chunk->holes.erase(hole);
    if (hole_bytes > bytes) chunk->holes.emplace(offset + bytes, hole_bytes - bytes);
    *block = {chunk->region.id, offset, chunk->region.data + offset, bytes};
    return true;
  }
  return false;
}

absl::StatusOr<PostArena::Block> PostArena::Take(size_t bytes) {
  bytes = RoundUp(bytes, kAlign);
  Block block;
  std::vector<Chunk> useless;
  {
    std::lock_guard lock(mutex_);
    for (Chunk& chunk : chunks_) {
      if (TakeFrom(&chunk, bytes, &block)) return block;
    }
    // What is empty and yet too small would only be kept for nothing.
    const auto kept = std::partition(chunks_.begin(), chunks_.end(),
                                     [](const Chunk& chunk) { return !chunk.Empty(); });
    useless.assign(std::make_move_iterator(kept), std::make_move_iterator(chunks_.end()));
    chunks_.erase(kept, chunks_.end());
  }
  for (const Chunk& chunk : useless) free_(chunk.region);
  SHUNT_ASSIGN_OR_RETURN(const Region region, allocate_(RoundUp(bytes, region_bytes_)));
  Chunk chunk{region, {{0, region.bytes}}};
  TakeFrom(&chunk, bytes, &block);
  std::lock_guard lock(mutex_);
  chunks_.push_back(std::move(chunk));
  return block;
}

void PostArena::Give(const Block& block) {
  std::lock_guard lock(mutex_);
  for (Chunk& chunk : chunks_) {
    if (chunk.region.id != block.region) continue;
    auto [hole, fresh] = chunk.holes.emplace(block.offset, block.bytes);
    if (const auto next = std::next(hole);
        next != chunk.holes.end() && hole->first + hole->second == next->first) {
      hole->second += next->second;
      chunk.holes.erase(next);
    }
    if (hole != chunk.holes.begin()) {
      if (const auto before = std::prev(hole); before->first + before->second == hole->first) {
        before->second += hole->second;
        chunk.holes.erase(hole);
      }
    }
    return;
  }
}

}  // namespace shunt::client
