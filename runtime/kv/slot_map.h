// One tier's slots: which holds which block, which are in use by transfers, and which is given up
// next. Pure data.
//
//            Reserve          Fill            Doom             Free
//     free ──────────► filling ──────► held ──────────► doomed ──────► free
//       ▲                 │            clean or dirty     while it is pinned, or still
//       └─────────────────┘ Abandon                       named on a disk
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/kv/types.h"

namespace shunt::tiers {

// Not thread-safe.
class SlotMap {
 public:
  struct Counts {
    uint64_t free = 0;
    uint64_t filling = 0;
    uint64_t clean = 0;
    uint64_t dirty = 0;
    uint64_t doomed = 0;
    uint64_t held_bytes = 0;  // of the blocks
  };

  explicit SlotMap(uint32_t slots);

  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
  Counts counts() const;

  // The slot that holds `key`'s block.
  std::optional<uint32_t> Find(std::string_view key) const;
  // Whether a slot was reserved for it that is not filled yet.
  bool Filling(std::string_view key) const;
  // Of a slot that is not free.
  const Block& block(uint32_t slot) const { return slots_[slot].block; }
  bool dirty(uint32_t slot) const { return slots_[slot].state == State::kDirty; }
  bool held(uint32_t slot) const { return Held(slots_[slot]); }
  uint32_t pins(uint32_t slot) const { return slots_[slot].pins; }
  // Changes with each block that the slot gets: tells it from one that it held before.
  uint64_t generation(uint32_t slot) const { return slots_[slot].generation; }

  // The lowest free slot, for a block that no slot holds or is reserved for. Nothing if none is
  // free.
  std::optional<uint32_t> Reserve(std::string_view key);
  // The block is there, and the most recent one.
  void Fill(uint32_t slot, uint64_t bytes, uint32_t sum, bool dirty);
  void Abandon(uint32_t slot);
  // As Reserve and Fill, of a slot by number, which must be free.
  void Restore(uint32_t slot, const Block& block);

  // Makes it the most recent one.
  void Touch(uint32_t slot);
  // It now is, or no longer is, in a tier below as well. Keeps its place in the order.
  void SetDirty(uint32_t slot, bool dirty);

  // While it is pinned it is in no order, and not free.
  void Pin(uint32_t slot) { ++slots_[slot].pins; }
  // True if this was the last pin of a doomed slot.
  bool Unpin(uint32_t slot);

  // From now on nobody finds the block.
  void Doom(uint32_t slot);
  // A doomed slot without pins.
  void Free(uint32_t slot);

  // Held slots without pins, the least recent first; only those whose blocks `may` allows.
  std::vector<uint32_t> Oldest(size_t max, bool dirty,
                               const std::function<bool(const Block&)>& may = nullptr) const;
  // Doomed slots without pins.
  std::vector<uint32_t> Doomed() const;
  // Doomed slots, pinned ones too, that a disk may still name: their keys may be others' by now.
  std::vector<uint32_t> StillNamed() const;
  // No disk names the doomed slot any more.
  void SetUnnamed(uint32_t slot);

 private:
  enum class State : uint8_t { kFree, kFilling, kClean, kDirty, kDoomed };
  struct Slot {
    Block block;
    State state = State::kFree;
    bool unnamed = false;  // of a doomed one
    uint32_t pins = 0;
    uint64_t used = 0;  // when: numbers that only grow
    uint64_t generation = 0;
  };
  struct KeyHash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
  };

  static bool Held(const Slot& s) { return s.state == State::kClean || s.state == State::kDirty; }
  std::map<uint64_t, uint32_t>& OrderOf(const Slot& s) {
    return s.state == State::kDirty ? dirty_ : clean_;
  }

  std::vector<Slot> slots_;
  std::unordered_map<std::string, uint32_t, KeyHash, std::equal_to<>> by_key_;  // filling and held
  std::set<uint32_t> free_;
  std::map<uint64_t, uint32_t> clean_, dirty_;  // by `used`
  std::set<uint32_t> doomed_;
  uint64_t now_ = 0;
  uint64_t filling_ = 0;
  uint64_t held_bytes_ = 0;
};

}  // namespace shunt::tiers
