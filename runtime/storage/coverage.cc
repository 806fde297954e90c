#include "runtime/storage/coverage.h"

#include <iterator>

namespace shunt::storage {

bool Coverage::Add(uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return true;
  uint64_t begin = offset, end = offset + bytes;
  auto after = ranges_.lower_bound(begin);
  if (after != ranges_.end() && after->first < end) return false;
  if (after != ranges_.begin()) {
    const auto before = std::prev(after);
    if (before->second > begin) return false;
    if (before->second == begin) {
      begin = before->first;
      ranges_.erase(before);
    }
  }
  if (after != ranges_.end() && after->first == end) {
    end = after->second;
    ranges_.erase(after);
  }
  ranges_.emplace(begin, end);
  bytes_ += bytes;
  return true;
}

uint64_t Coverage::first_missing() const {
  const auto first = ranges_.begin();
  return first == ranges_.end() || first->first != 0 ? 0 : first->second;
}

}  // namespace shunt::storage
