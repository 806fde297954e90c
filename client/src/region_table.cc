#include "client/src/region_table.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace shunt::client {
namespace {

uintptr_t Begin(const RegionTable::OwnRegion& region) {
  return reinterpret_cast<uintptr_t>(region.mapping.data());
}

RegionTable::Memory MemoryOf(const Mapping& mapping) { return {mapping.data(), mapping.size()}; }

// Where `id` is, or belongs, in a vector that is sorted by id.
template <typename Vector>
auto LowerBound(Vector& v, uint64_t id) {
  return std::lower_bound(v.begin(), v.end(), id,
                          [](const auto& e, uint64_t i) { return e.id < i; });
}

}  // namespace

void RegionTable::AddOwn(OwnRegion region) {
  std::unique_lock lock(mutex_);
  const auto at =
      std::upper_bound(own_.begin(), own_.end(), Begin(region),
                       [](uintptr_t address, const OwnRegion& r) { return address < Begin(r); });
  own_by_id_.insert(LowerBound(own_by_id_, region.id), {region.id, MemoryOf(region.mapping)});
  own_.insert(at, std::move(region));
}

std::optional<RegionTable::OwnRegion> RegionTable::RemoveOwn(const void* data) {
  std::unique_lock lock(mutex_);
  const auto at = std::find_if(own_.begin(), own_.end(),
                               [data](const OwnRegion& r) { return r.mapping.data() == data; });
  if (at == own_.end()) return std::nullopt;
  OwnRegion region = std::move(*at);
  own_.erase(at);
  own_by_id_.erase(LowerBound(own_by_id_, region.id));
  return region;
}

board::RegionRef RegionTable::Find(const void* p, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  std::shared_lock lock(mutex_);
  auto at = std::upper_bound(own_.begin(), own_.end(), address,
                             [](uintptr_t a, const OwnRegion& r) { return a < Begin(r); });
  if (at == own_.begin()) return {};
  --at;
  const uint64_t offset = address - Begin(*at);
  if (offset >= at->mapping.size() || bytes > at->mapping.size() - offset) return {};
  return {at->id, offset};
}

RegionTable::Holder RegionTable::HolderOf(const void* p) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  std::shared_lock lock(mutex_);
  auto at = std::upper_bound(own_.begin(), own_.end(), address,
                             [](uintptr_t a, const OwnRegion& r) { return a < Begin(r); });
  if (at == own_.begin()) return {};
  --at;
  const Holder holder{at->id, at->mapping.data(), at->mapping.size()};
  return holder.Holds(p, 0) ? holder : Holder{};
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
