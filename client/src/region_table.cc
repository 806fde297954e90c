#include "client/src/region_table.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace shunt::client {
namespace {

RegionTable::Memory MemoryOf(const Mapping& mapping) { return {mapping.data(), mapping.size()}; }

// Where `id` is, or belongs, in a vector that is sorted by id.
template <typename Vector>
auto LowerBound(Vector& v, uint64_t id) {
  return std::lower_bound(v.begin(), v.end(), id,
                          [](const auto& e, uint64_t i) { return e.id < i; });
}

}  // namespace

const RegionTable::Range* RegionTable::RangeOf(uintptr_t address) const {
  auto at = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                             [](uintptr_t a, const Range& r) { return a < r.begin; });
  if (at == ranges_.begin()) return nullptr;
  --at;
  return address - at->begin < at->bytes ? &*at : nullptr;
}

void RegionTable::AddRange(const Range& range) {
  const auto at = std::upper_bound(ranges_.begin(), ranges_.end(), range.begin,
                                   [](uintptr_t a, const Range& r) { return a < r.begin; });
  ranges_.insert(at, range);
}

void RegionTable::AddOwn(OwnRegion region) {
  std::unique_lock lock(mutex_);
  AddRange({reinterpret_cast<uintptr_t>(region.mapping.data()), region.mapping.size(), region.id});
  own_by_id_.insert(LowerBound(own_by_id_, region.id), {region.id, MemoryOf(region.mapping)});
  own_.push_back(std::move(region));
}

void RegionTable::AddDevice(uint64_t id, uint64_t address, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  AddRange({address, bytes, id, /*device=*/true});
}

bool RegionTable::RemoveDevice(uint64_t id) {
  std::unique_lock lock(mutex_);
  return std::erase_if(ranges_, [id](const Range& r) { return r.device && r.id == id; }) != 0;
}

std::optional<RegionTable::OwnRegion> RegionTable::RemoveOwn(const void* data) {
  std::unique_lock lock(mutex_);
  const auto at = std::find_if(own_.begin(), own_.end(),
                               [data](const OwnRegion& r) { return r.mapping.data() == data; });
  if (at == own_.end()) return std::nullopt;
  OwnRegion region = std::move(*at);
  own_.erase(at);
  own_by_id_.erase(LowerBound(own_by_id_, region.id));
  std::erase_if(ranges_, [&](const Range& r) { return r.id == region.id; });
  return region;
}

board::RegionRef RegionTable::Find(const void* p, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  std::shared_lock lock(mutex_);
  const Range* const range = RangeOf(address);
  if (range == nullptr) return {};
  const uint64_t offset = address - range->begin;
  if (bytes > range->bytes - offset) return {};
  return {range->id, offset};
}

RegionTable::Holder RegionTable::HolderOf(const void* p) const {
  std::shared_lock lock(mutex_);
  const Range* const range = RangeOf(reinterpret_cast<uintptr_t>(p));
  if (range == nullptr) return {};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a GPU's address is a number here
  return {range->id, reinterpret_cast<const std::byte*>(range->begin), range->bytes, range->device};
}

uint64_t RegionTable::OwnId(const void* data) const {
  std::shared_lock lock(mutex_);
  for (const OwnRegion& r : own_) {
    if (r.mapping.data() == data) return r.id;
  }
  return 0;
}

RegionTable::Memory RegionTable::Own(uint64_t id) const {
  std::shared_lock lock(mutex_);
  const auto at = LowerBound(own_by_id_, id);
  return at != own_by_id_.end() && at->id == id ? at->memory : Memory{};
}

uint64_t RegionTable::BytesOf(uint64_t id) const {
  std::shared_lock lock(mutex_);
  const auto at =
      std::find_if(ranges_.begin(), ranges_.end(), [id](const Range& r) { return r.id == id; });
  return at == ranges_.end() ? 0 : at->bytes;
}

RegionTable::Memory RegionTable::Peer(uint64_t id) const {
  std::shared_lock lock(mutex_);
  const auto at = LowerBound(peers_, id);
  return at != peers_.end() && at->id == id ? MemoryOf(at->mapping) : Memory{};
}

RegionTable::Memory RegionTable::AddPeer(uint64_t id, Mapping mapping) {
  std::unique_lock lock(mutex_);
  const auto at = LowerBound(peers_, id);
  if (at != peers_.end() && at->id == id) return MemoryOf(at->mapping);
  return MemoryOf(peers_.insert(at, PeerRegion{id, std::move(mapping)})->mapping);
}

}  // namespace shunt::client
