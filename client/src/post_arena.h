// Shared memory for what posted transfers name: records, ids, notifications (transfer_post.h).
// Taken from the daemon region by region, when it is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"

namespace shunt::client {

// Thread-safe.
class PostArena {
 public:
  struct Region {
    uint64_t id = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  struct Block {
    uint64_t region = 0;
    uint64_t offset = 0;  // in the region
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  using Allocate = std::function<absl::StatusOr<Region>(size_t bytes)>;
  using Free = std::function<void(const Region& region)>;

  // Regions are multiples of `region_bytes`. `allocate` and `free` may block.
  PostArena(size_t region_bytes, Allocate allocate, Free free);

  // A block of at least `bytes` > 0 bytes, aligned to 64. Errors are those of `allocate`.
  absl::StatusOr<Block> Take(size_t bytes);
  // What Take gave, once.
  void Give(const Block& block);

 private:
  struct Chunk {
    Region region;
    std::map<size_t, size_t> holes;  // offset to bytes; neighbours are joined
    bool Empty() const { return holes.size() == 1 && holes.begin()->second == region.bytes; }
  };

  static bool TakeFrom(Chunk* chunk, size_t bytes, Block* block);

  const size_t region_bytes_;
  const Allocate allocate_;
  const Free free_;
  std::mutex mutex_;
  std::vector<Chunk> chunks_;
};

}  // namespace shunt::client
