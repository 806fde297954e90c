#include "client/src/cuda/gates.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include "client/src/cuda/context_scope.h"
#include "client/src/fork_guard.h"
#include "runtime/core/status.h"

namespace shunt::client::cuda {
namespace {

// A line each: the worker's CPU looks at one while a GPU writes to its neighbour.
constexpr size_t kStride = 64;
constexpr size_t kChunkBytes = 64 << 10;
constexpr uint32_t kSlotsPerChunk = kChunkBytes / kStride;
static_assert(sizeof(gpu::GateWords) <= kStride && sizeof(gpu::GateWords) == 8);

// Pinned memory of gates whose session is over. Every stream has written its triggers there and may
// go on, but has perhaps not looked yet; and the driver may wait for the GPU before it lets go of
// memory. So it is kept until many other sessions have ended.
constexpr size_t kKeptMax = 64;

void Keep(gpu::Driver* driver, Mapping mapping) {
  static std::mutex mutex;
  static auto* const kept = new std::deque<Mapping>;
  Mapping oldest;
  {
    std::lock_guard lock(mutex);
    kept->push_back(std::move(mapping));
    if (kept->size() <= kKeptMax) return;
    oldest = std::move(kept->front());
    kept->pop_front();
  }
  // Without a current context, or in a process that ends, the driver refuses: then it keeps the
  // pages.
  if (driver->UnregisterHost(oldest.data()).ok()) return;
  new (std::nothrow) Mapping(std::move(oldest));
}

}  // namespace

Gates::Gates(gpu::Driver* driver, MakeRegion make_region)
    : fork_generation_(ForkGeneration()), driver_(driver), make_region_(std::move(make_region)) {}

Gates::~Gates() {
  const bool over = fork_generation_ == ForkGeneration() && AllPassed();
  for (Chunk& chunk : chunks_) {
    if (over) {
      Keep(driver_, std::move(chunk.region.mapping));
    } else {
      new (std::nothrow) Mapping(std::move(chunk.region.mapping));
    }
  }
}

Gates::Gate Gates::GateOf(uint32_t index) const {
  const Chunk& chunk = chunks_[index / kSlotsPerChunk];
  const uint64_t offset = index % kSlotsPerChunk * kStride;
  return {.index = index,
          .generation = slots_[index].generation,
          .words = reinterpret_cast<gpu::GateWords*>(chunk.region.mapping.data() + offset),
          .device = chunk.device + offset,
          .place = {chunk.region.id, offset}};
}

absl::Status Gates::Grow() {
  SHUNT_ASSIGN_OR_RETURN(RegionTable::OwnRegion region, make_region_(kChunkBytes));
  const CaptureLeave leave(driver_);
  SHUNT_ASSIGN_OR_RETURN(const gpu::DevicePtr device,
                         driver_->RegisterHost(region.mapping.data(), kChunkBytes));
  const auto first = static_cast<uint32_t>(slots_.size());
  chunks_.push_back({std::move(region), device});
  slots_.resize(first + kSlotsPerChunk);
  for (uint32_t i = kSlotsPerChunk; i-- > 0;) free_.push_back(first + i);
  return absl::OkStatus();
}

bool Gates::Passed(uint32_t index) const {
  return GateOf(index).words->trigger.load(std::memory_order_acquire) == slots_[index].generation;
}

bool Gates::AllPassed() const {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Use use = slots_[i].use;
    if (use == Use::kRepeating) return false;
    if ((use == Use::kOnce || use == Use::kLate) && !Passed(i)) return false;
  }
  return true;
}

absl::StatusOr<Gates::Gate> Gates::Take() {
  std::lock_guard lock(mutex_);
  if (released_) {
    return absl::UnavailableError(
        "shuntd is gone; the session is over. Once shuntd runs again, open a new one");
  }
  if (free_.empty()) {
    const auto passed =
        std::partition(late_.begin(), late_.end(), [this](uint32_t i) { return !Passed(i); });
    free_.insert(free_.end(), passed, late_.end());
    late_.erase(passed, late_.end());
  }
  if (free_.empty()) SHUNT_RETURN_IF_ERROR(Grow());
  const uint32_t index = free_.back();
  free_.pop_back();
  slots_[index].use = Use::kOnce;
  ++slots_[index].generation;
  return GateOf(index);
}

void Gates::Give(const Gate& gate) {
  std::lock_guard lock(mutex_);
  slots_[gate.index].use = Use::kFree;
  free_.push_back(gate.index);
}

void Gates::GiveLate(const Gate& gate) {
  Release(gate);
  std::lock_guard lock(mutex_);
  slots_[gate.index].use = Use::kLate;
  late_.push_back(gate.index);
}

absl::StatusOr<Gates::Gate> Gates::TakeRepeating() {
  std::lock_guard lock(mutex_);
  if (released_) {
    return absl::UnavailableError(
        "shuntd is gone; the session is over. Once shuntd runs again, open a new one");
  }
  // Slots of the two kinds are kept apart: levels mean nothing to who compares generations, and the
  // stream of a call that has ended may not have looked at its done word yet.
  if (free_repeating_.empty()) {
    const auto fresh = [this] {
      return std::find_if(free_.begin(), free_.end(),
                          [this](uint32_t i) { return slots_[i].generation == 0; });
    };
    if (fresh() == free_.end()) SHUNT_RETURN_IF_ERROR(Grow());
    const auto found = fresh();
    free_repeating_.push_back(*found);
    free_.erase(found);
  }
  const uint32_t index = free_repeating_.back();
  free_repeating_.pop_back();
  slots_[index] = {.generation = 1, .use = Use::kRepeating};
  Gate gate = GateOf(index);
  gate.words->done.store(0, std::memory_order_relaxed);
  gate.words->trigger.store(0, std::memory_order_release);
  return gate;
}

void Gates::GiveRepeating(const Gate& gate) {
  std::lock_guard lock(mutex_);
  slots_[gate.index].use = Use::kRepeatingFree;
  free_repeating_.push_back(gate.index);
}

void Gates::Release(const Gate& gate) {
  gate.words->done.store(gate.generation, std::memory_order_release);
}

void Gates::ReleaseTurn(const Gate& gate) {
  uint32_t triggered = 1;
  if (gate.words->trigger.compare_exchange_strong(triggered, 0, std::memory_order_acq_rel)) {
    gate.words->done.store(1, std::memory_order_release);
  }
}

void Gates::ReleaseAll() {
  std::lock_guard lock(mutex_);
  released_ = true;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].use == Use::kOnce) Release(GateOf(i));
  }
}

}  // namespace shunt::client::cuda
