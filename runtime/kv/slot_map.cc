#include "runtime/kv/slot_map.h"

#include "runtime/core/check.h"

namespace shunt::tiers {

SlotMap::SlotMap(uint32_t slots) : slots_(slots) {
  for (uint32_t slot = 0; slot < slots; ++slot) free_.insert(free_.end(), slot);
}

SlotMap::Counts SlotMap::counts() const {
  return {free_.size(), filling_, clean_.size(), dirty_.size(), doomed_.size(), held_bytes_};
}

std::optional<uint32_t> SlotMap::Find(std::string_view key) const {
  const auto at = by_key_.find(key);
  if (at == by_key_.end() || !Held(slots_[at->second])) return std::nullopt;
  return at->second;
}

bool SlotMap::Filling(std::string_view key) const {
  const auto at = by_key_.find(key);
  return at != by_key_.end() && slots_[at->second].state == State::kFilling;
}

std::optional<uint32_t> SlotMap::Reserve(std::string_view key) {
  if (free_.empty()) return std::nullopt;
  const uint32_t slot = *free_.begin();
  SHUNT_CHECK(by_key_.try_emplace(std::string(key), slot).second);
  free_.erase(free_.begin());
  Slot& s = slots_[slot];
  s.block = {std::string(key), 0, 0};
  s.state = State::kFilling;
  ++s.generation;
  ++filling_;
  return slot;
}

void SlotMap::Fill(uint32_t slot, uint64_t bytes, uint32_t sum, bool dirty) {
  Slot& s = slots_[slot];
  SHUNT_CHECK(s.state == State::kFilling);
  --filling_;
  s.block.bytes = bytes;
  s.block.sum = sum;
  s.state = dirty ? State::kDirty : State::kClean;
  s.used = ++now_;
  held_bytes_ += bytes;
  OrderOf(s).emplace(s.used, slot);
}

void SlotMap::Abandon(uint32_t slot) {
  Slot& s = slots_[slot];
  SHUNT_CHECK(s.state == State::kFilling && s.pins == 0);
  --filling_;
  by_key_.erase(s.block.key);
  s.block = {};
  s.state = State::kFree;
  free_.insert(slot);
}

void SlotMap::Restore(uint32_t slot, const Block& block) {
  SHUNT_CHECK(free_.erase(slot) == 1);
  SHUNT_CHECK(by_key_.try_emplace(block.key, slot).second);
  Slot& s = slots_[slot];
  s.block = block;
  s.state = State::kFilling;
  ++s.generation;
  ++filling_;
  Fill(slot, block.bytes, block.sum, /*dirty=*/false);
}

void SlotMap::Touch(uint32_t slot) {
  Slot& s = slots_[slot];
  SHUNT_CHECK(Held(s));
  auto& order = OrderOf(s);
  order.erase(s.used);
  s.used = ++now_;
  order.emplace(s.used, slot);
}

void SlotMap::SetDirty(uint32_t slot, bool dirty) {
  Slot& s = slots_[slot];
  SHUNT_CHECK(Held(s));
  OrderOf(s).erase(s.used);
  s.state = dirty ? State::kDirty : State::kClean;
  OrderOf(s).emplace(s.used, slot);
}

bool SlotMap::Unpin(uint32_t slot) {
  Slot& s = slots_[slot];
  SHUNT_CHECK(s.pins > 0);
  return --s.pins == 0 && s.state == State::kDoomed;
}

void SlotMap::Doom(uint32_t slot) {
  Slot& s = slots_[slot];
  SHUNT_CHECK(Held(s));
  OrderOf(s).erase(s.used);
  by_key_.erase(s.block.key);
  held_bytes_ -= s.block.bytes;
  s.state = State::kDoomed;
  s.unnamed = false;
  doomed_.insert(slot);
}

void SlotMap::Free(uint32_t slot) {
  Slot& s = slots_[slot];
  SHUNT_CHECK(s.state == State::kDoomed && s.pins == 0);
  doomed_.erase(slot);
  s.block = {};
  s.state = State::kFree;
  free_.insert(slot);
}

std::vector<uint32_t> SlotMap::Oldest(size_t max, bool dirty,
                                      const std::function<bool(const Block&)>& may) const {
  std::vector<uint32_t> oldest;
  for (const auto& [used, slot] : dirty ? dirty_ : clean_) {
    if (oldest.size() == max) break;
    const Slot& s = slots_[slot];
    if (s.pins == 0 && (!may || may(s.block))) oldest.push_back(slot);
  }
  return oldest;
}

std::vector<uint32_t> SlotMap::Doomed() const {
  std::vector<uint32_t> doomed;
  for (const uint32_t slot : doomed_) {
    if (slots_[slot].pins == 0) doomed.push_back(slot);
  }
  return doomed;
}

std::vector<uint32_t> SlotMap::StillNamed() const {
  std::vector<uint32_t> named;
  for (const uint32_t slot : doomed_) {
    if (!slots_[slot].unnamed) named.push_back(slot);
  }
  return named;
}

void SlotMap::SetUnnamed(uint32_t slot) {
  Slot& s = slots_[slot];
  SHUNT_CHECK(s.state == State::kDoomed);
  s.unnamed = true;
}

}  // namespace shunt::tiers
