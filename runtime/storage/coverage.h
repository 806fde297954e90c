// Which bytes of a draft have been written: a set of ranges, each byte at most once.
#pragma once

#include <cstdint>
#include <map>

namespace shunt::storage {

class Coverage {
 public:
  // False, and nothing is added, if a byte of [offset, offset + bytes) is in already. The sum does
  // not overflow. O(log ranges).
  bool Add(uint64_t offset, uint64_t bytes);
  uint64_t bytes() const { return bytes_; }
  // What it takes of the heap, about: a node of the map has three pointers, a colour and a range.
  uint64_t memory_bytes() const { return 64 * ranges(); }
  uint64_t ranges() const { return ranges_.size(); }
  // The first byte that is not in.
  uint64_t first_missing() const;

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin, end; neighbours are merged
  uint64_t bytes_ = 0;
};

}  // namespace shunt::storage
