// The memory tier's slots, and the thread that waits for transfers to and from them.
#include <algorithm>
#include <chrono>
#include <utility>

#include "client/src/kv/store.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"

namespace shunt::client::kv {

std::optional<uint32_t> Store::TakeMemorySlot(const std::string& key) {
  if (const auto slot = memory_map_.Reserve(key)) return slot;
  const std::vector<uint32_t> oldest = memory_map_.Oldest(1, /*dirty=*/false);
  if (oldest.empty()) return std::nullopt;
  ++facts_.tiers[Number(Tier::kMemory)].evictions;
  if (!HasLower()) ++facts_.dropped;
  memory_map_.Doom(oldest[0]);
  memory_map_.Free(oldest[0]);
  return memory_map_.Reserve(key);
}

void Store::UnpinMemory(uint32_t slot) {
  if (memory_map_.Unpin(slot)) memory_map_.Free(slot);
  if (memory_map_.pins(slot) == 0) WakePuts();
}

bool Store::LostBelow(const std::string& key) {
  if (file_map_ && file_map_->Find(key)) return true;
  if (object_map_ && object_map_->Find(key)) return true;
  const auto slot = memory_map_.Find(key);
  if (slot) memory_map_.SetDirty(*slot, true);
  return slot.has_value();
}

std::vector<uint32_t> Store::OldestBelow(const SlotMap& map, size_t max) const {
  return map.Oldest(max, /*dirty=*/false, [this](const tiers::Block& block) {
    return !memory_map_.Find(block.key).has_value();
  });
}

bool Store::Doubted(uint32_t slot) const {
  const auto at = doubted_.find(slot);
  return at != doubted_.end() && at->second == object_map_->generation(slot);
}

void Store::ForgetDoubted(const std::string& key) {
  if (!object_map_ || memory_map_.Find(key) || (file_map_ && file_map_->Find(key))) return;
  const auto slot = object_map_->Find(key);
  if (!slot || !Doubted(*slot)) return;
  object_map_->Doom(*slot);
  writer_changed_.notify_all();
}

bool Store::TouchPresent(const std::string& key, std::optional<Tier>* tier, uint64_t* bytes) {
  *tier = std::nullopt;
  const auto touch = [&](SlotMap& map, Tier which) {
    const auto slot = map.Find(key);
    if (!slot) return;
    map.Touch(*slot);
    if (*tier) return;
    *tier = which;
    if (bytes != nullptr) *bytes = map.block(*slot).bytes;
  };
  touch(memory_map_, Tier::kMemory);
  if (file_map_) touch(*file_map_, Tier::kFile);
  if (object_map_) touch(*object_map_, Tier::kObjects);
  return tier->has_value();
}

void Store::WakePuts() {
  if (parked_.empty()) return;
  retry_parked_ = true;
  memory_changed_.notify_all();
}

void Store::ExpireParked(Lock& lock) {
  const int64_t now_ns = NowNs();
  std::deque<PutPtr> expired;
  for (auto at = parked_.begin(); at != parked_.end();) {
    if ((*at)->call->deadline_ns() > now_ns) {
      ++at;
      continue;
    }
    expired.push_back(std::move(*at));
    at = parked_.erase(at);
  }
  for (const PutPtr& put : expired) {
    FailPut(lock, put,
            absl::DeadlineExceededError(
                put->for_room ? "memory is full of blocks that are not written down yet"
                              : "another put of one of the keys has not ended"));
  }
}

void Store::MemoryLoop() {
  Lock lock(mutex_);
  while (true) {
    ExpireParked(lock);
    ExpireFlushes(lock);
    if (retry_parked_) {
      retry_parked_ = false;
      for (const PutPtr& put : std::exchange(parked_, {})) AdvancePut(lock, put);
    }
    if (!in_flight_.empty()) {
      InFlight one = std::move(in_flight_.front());
      in_flight_.pop_front();
      lock.unlock();
      const absl::Status status = Mover::Finish(one.transfer);
      lock.lock();
      one.then(lock, status);
      continue;
    }
    if (stop_) return;
    if (retry_parked_) continue;
    int64_t until_ns = FirstFlushNs();
    for (const PutPtr& put : parked_) until_ns = std::min(until_ns, put->call->deadline_ns());
    if (until_ns == kNeverNs) {
      memory_changed_.wait(lock);
    } else {
      memory_changed_.wait_until(
          lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until_ns)));
    }
  }
}

}  // namespace shunt::client::kv
