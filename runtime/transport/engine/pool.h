// Slots that are used again, each named by an id that no later use of it has: an id may lie in a
// queue, or with a peer, after its slot has been freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace shunt::transport {

template <typename T>
class Pool {
 public:
  // Never 0.
  using Id = uint64_t;

  Id Add(T value) {
    uint32_t index;
    if (free_.empty()) {
      index = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Slot& slot = slots_[index];
    slot.value = std::move(value);
    slot.used = true;
    return uint64_t{++slot.generation} << 32 | index;
  }

  // Null if the id was never given out, or its slot has been freed.
  T* Find(Id id) {
    const auto index = static_cast<uint32_t>(id);
    if (index >= slots_.size()) return nullptr;
    Slot& slot = slots_[index];
    return slot.used && slot.generation == id >> 32 ? &slot.value : nullptr;
  }

  void Free(Id id) {
    Slot& slot = slots_[static_cast<uint32_t>(id)];
    slot.used = false;
    slot.value = T{};
    free_.push_back(static_cast<uint32_t>(id));
  }

 private:
  struct Slot {
    T value{};
    uint32_t generation = 0;
    bool used = false;
  };
  std::deque<Slot> slots_;  // addresses stay
  std::vector<uint32_t> free_;
};

}  // namespace shunt::transport
