#include "daemon/transfer/section_cache.h"

#include <utility>

namespace shunt::daemon {
namespace {

// A set with its geometry and boxes, and what an entry has besides.
constexpr size_t kSetBytes = 320;
constexpr size_t kEntryBytes = 1024;

size_t BytesOf(const Published& published) {
  const p2p::Section& section = published.list->section();
  return kEntryBytes + kSetBytes * section.sets.size() +
         sizeof(p2p::RegionExtent) * section.regions.size();
}

}  // namespace

std::shared_ptr<const Published> SectionCache::Find(const Key& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  order_.splice(order_.begin(), order_, found->second);
  return found->second->published;
}

std::shared_ptr<const Published> SectionCache::Put(const Key& key,
                                                   std::shared_ptr<Published> fresh) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    const std::shared_ptr<Published> before = found->second->published;
    const bool same_agent = before->incarnation() == fresh->incarnation();
    if (same_agent && before->version() == fresh->version() &&
        before->grant.read == fresh->grant.read && before->grant.write == fresh->grant.write) {
      order_.splice(order_.begin(), order_, found->second);
      return before;
    }
    if (same_agent && before->version() > fresh->version()) {
      // Two answers have overtaken each other.
      fresh->replaced_by.store(before->version(), std::memory_order_release);
      return fresh;
    }
    before->replaced_by.store(same_agent ? fresh->version() : Published::kAgentEnded,
                              std::memory_order_release);
    Drop(found->second);
  }
  const size_t bytes = BytesOf(*fresh);
  order_.push_front({key, fresh, bytes});
  by_key_.emplace(key, order_.begin());
  bytes_ += bytes;
  while (order_.size() > limits_.entries_max || bytes_ > limits_.bytes_max) {
    Drop(std::prev(order_.end()));
  }
  return fresh;
}

void SectionCache::Drop(Order::iterator entry) {
  bytes_ -= entry->bytes;
  by_key_.erase(entry->key);
  order_.erase(entry);
}

}  // namespace shunt::daemon
