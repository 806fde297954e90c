#include "runtime/storage/posix/split.h"

#include <algorithm>

namespace shunt::storage {

Cut NextCut(const Blocks& blocks, uint64_t offset, const std::byte* memory, uint64_t bytes,
            uint64_t io_bytes_max) {
  const Cut buffered{.bytes = std::min(bytes, io_bytes_max), .direct = false};
  if (!blocks.direct) return buffered;
  const uint64_t block = blocks.bytes;
  const uint64_t head = (block - offset % block) % block;
  // Too short for a whole block, or no address after the head is right.
  if (bytes < head + block) return buffered;
  if ((reinterpret_cast<uintptr_t>(memory) + head) % blocks.memory_align != 0) return buffered;
  if (head > 0) return {.bytes = std::min(head, io_bytes_max), .direct = false};
  const uint64_t most = std::max(io_bytes_max, block);
  const uint64_t whole = std::min(bytes, most);
  return {.bytes = whole - whole % block, .direct = true};
}

}  // namespace shunt::storage
