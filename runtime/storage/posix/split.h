// How a range becomes single reads and writes: pure.
//
//   |<- head ->|<------- whole blocks ------->|<- tail ->|
//    buffered    O_DIRECT if memory is aligned   buffered
//
// No page of the file is ever reached both ways by disjoint ranges: a buffered write would
// otherwise bring back, with the rest of its page, what the disk held before a direct one. So
// blocks are whole pages at least.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::storage {

// What O_DIRECT asks of a file.
struct Blocks {
  bool direct = false;
  uint32_t bytes = 4096;        // of offset and length; a power of two, a page at least
  uint32_t memory_align = 512;  // a power of two
};

struct Cut {
  uint64_t bytes = 0;
  bool direct = false;
};

// The first read or write of [offset, offset + bytes), which is not empty. io_bytes_max > 0.
Cut NextCut(const Blocks& blocks, uint64_t offset, const std::byte* memory, uint64_t bytes,
            uint64_t io_bytes_max);

}  // namespace shunt::storage
