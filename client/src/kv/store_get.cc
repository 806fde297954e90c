// Gets: one transfer for each tier, straight into the caller's memory.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/kv/store.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client::kv {

absl::StatusOr<std::shared_ptr<Call>> Store::Get(std::vector<CallBlock> blocks,
                                                 int64_t deadline_ns) {
  SHUNT_RETURN_IF_ERROR(CheckBlocks(blocks));
  SHUNT_RETURN_IF_ERROR(CheckRoom(blocks));
  auto get = std::make_shared<GetState>();
  get->call = std::make_shared<Call>(blocks.size(), deadline_ns);
  const std::shared_ptr<Call> call = get->call;
  std::array<std::vector<GetBlock>, shunt::tiers::kTiers> parts;

  Lock lock(mutex_);
  SHUNT_RETURN_IF_ERROR(BeginCall(lock));
  for (size_t i = 0; i < blocks.size(); ++i) {
    CallBlock& wanted = blocks[i];
    std::optional<Tier> tier;
    if (!TouchPresent(wanted.key, &tier)) {
      ++facts_.misses;
      call->Set(i, {absl::StatusCode::kNotFound, std::nullopt, 0});
      continue;
    }
    SlotMap& map = *tier == Tier::kMemory ? memory_map_
                   : *tier == Tier::kFile ? *file_map_
                                          : *object_map_;
    const uint32_t slot = *map.Find(wanted.key);
    const shunt::tiers::Block& held = map.block(slot);
    if (held.bytes > wanted.bytes) {
      call->Set(i, {absl::StatusCode::kOutOfRange, tier, held.bytes});
      call->Fail(absl::OutOfRangeError(absl::StrCat("blocks[", i, "]: room for ", wanted.bytes,
                                                    " bytes, the block has ", held.bytes)));
      continue;
    }
    map.Pin(slot);
    parts[Number(*tier)].push_back(
        {i, slot, std::move(wanted.key), wanted.data, held.bytes, held.sum, {}});
  }
  get->parts = static_cast<size_t>(
      std::count_if(parts.begin(), parts.end(), [](const auto& p) { return !p.empty(); }));
  if (get->parts == 0) {
    EndCall(lock, call.get());
    return call;
  }
  for (const Tier tier : {Tier::kFile, Tier::kObjects}) {
    if (parts[Number(tier)].empty()) continue;
    reads_.push_back({get, tier, std::move(parts[Number(tier)])});
    reader_changed_.notify_all();
  }
  if (auto& memory = parts[Number(Tier::kMemory)]; !memory.empty()) {
    StartMemoryPart(lock, get, std::move(memory));
  }
  return call;
}

void Store::StartMemoryPart(Lock& lock, const GetPtr& get, std::vector<GetBlock> blocks) {
  std::vector<Span> to, from;
  for (const GetBlock& block : blocks) {
    to.push_back({block.data, block.bytes});
    from.push_back({MemoryAt(block.slot), block.bytes});
  }
  lock.unlock();
  auto transfer = mover_.Start(Way::kIntoMemory, to, from, get->call->deadline_ns());
  lock.lock();
  in_flight_.push_back({std::move(transfer), [this, get, blocks = std::move(blocks)](
                                                 Lock& held, const absl::Status& status) mutable {
                          for (GetBlock& block : blocks) block.outcome = status;
                          EndPart(held, get, Tier::kMemory, blocks);
                        }});
  memory_changed_.notify_all();
}

// The blocks' slots are still pinned.
void Store::EndPart(Lock& lock, const GetPtr& get, Tier tier, std::vector<GetBlock>& blocks) {
  TierFacts& facts = facts_.tiers[Number(tier)];
  SlotMap* const map = tier == Tier::kFile      ? &*file_map_
                       : tier == Tier::kObjects ? &*object_map_
                                                : &memory_map_;
  for (const GetBlock& block : blocks) {
    absl::StatusCode code = block.outcome.code();
    if (block.outcome.ok()) {
      ++facts.hits;
      facts.hit_bytes += block.bytes;
      if (tier == Tier::kObjects) doubted_.erase(block.slot);
    } else if (block.wrong || (tier == Tier::kObjects && absl::IsNotFound(block.outcome))) {
      // Missed, and forgotten if that is certain.
      code = absl::StatusCode::kNotFound;
      ++facts_.corrupt;
      ++facts_.misses;
      if (map->held(block.slot) && !block.wrong) {
        doubted_[block.slot] = map->generation(block.slot);
      } else if (map->held(block.slot)) {
        map->Doom(block.slot);
        (void)LostBelow(block.key);
      }
    } else {
      if (tier != Tier::kMemory) ++facts_.errors;
      get->call->Fail(block.outcome);
    }
    const bool miss = code == absl::StatusCode::kNotFound;
    get->call->Set(block.number,
                   {code, miss ? std::nullopt : std::optional(tier), miss ? 0 : block.bytes});
    if (tier == Tier::kMemory) {
      UnpinMemory(block.slot);
    } else {
      map->Unpin(block.slot);
    }
  }
  if (tier != Tier::kMemory) {
    pinned_ = false;
    writer_changed_.notify_all();
  }
  if (--get->parts == 0) EndCall(lock, get->call.get());
}

void Store::ReaderLoop() {
  Lock lock(mutex_);
  while (true) {
    reader_changed_.wait(lock, [this] { return stop_ || !reads_.empty(); });
    if (reads_.empty()) return;
    ReadJob job = std::move(reads_.front());
    reads_.pop_front();
    Read(lock, job);
  }
}

void Store::Read(Lock& lock, ReadJob& job) {
  std::vector<Wanted> wanted;
  for (const GetBlock& block : job.blocks) {
    wanted.push_back({block.slot, block.key, block.data, block.bytes});
  }
  const int64_t deadline_ns = job.get->call->deadline_ns();
  lock.unlock();
  if (NowNs() >= deadline_ns) {
    for (GetBlock& block : job.blocks) {
      block.outcome = absl::DeadlineExceededError("reads that came before took too long");
    }
  } else if (job.tier == Tier::kFile) {
    const absl::Status read = file_->Read(wanted, deadline_ns);
    for (GetBlock& block : job.blocks) block.outcome = read;
  } else {
    const std::vector<ObjectRead> outcomes = objects_->Read(wanted, deadline_ns);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      job.blocks[i].outcome = outcomes[i].status;
      job.blocks[i].wrong = outcomes[i].another;
    }
  }
  Verify(job.blocks);
  lock.lock();
  Promote(lock, job.blocks, deadline_ns);
  EndPart(lock, job.get, job.tier, job.blocks);
}

void Store::Verify(std::vector<GetBlock>& blocks) const {
  for (GetBlock& block : blocks) {
    if (!block.outcome.ok()) continue;
    const uint32_t sum = shunt::tiers::Checksum(0, std::span(block.data, block.bytes));
    if (sum == block.sum) continue;
    block.wrong = true;
    block.outcome = absl::DataLossError(
        absl::StrCat("the block's checksum is ", sum, ", expected ", block.sum));
  }
}

// From the caller's memory, which is still the call's: in the call's time, or not at all.
void Store::Promote(Lock& lock, const std::vector<GetBlock>& blocks, int64_t deadline_ns) {
  std::vector<Span> from, slots;
  std::vector<std::pair<uint32_t, const GetBlock*>> taken;
  for (const GetBlock& block : blocks) {
    if (!block.outcome.ok() || memory_map_.Find(block.key) || memory_map_.Filling(block.key)) {
      continue;
    }
    const auto slot = TakeMemorySlot(block.key);
    if (!slot) break;
    taken.emplace_back(*slot, &block);
    from.push_back({block.data, block.bytes});
    slots.push_back({MemoryAt(*slot), block.bytes});
  }
  if (taken.empty()) return;
  lock.unlock();
  const absl::Status copied =
      Mover::Finish(mover_.Start(Way::kOutOfMemory, from, slots, deadline_ns));
  lock.lock();
  for (const auto& [slot, block] : taken) {
    // It is pinned below: if it is not found there, it was erased meanwhile.
    const bool below = (file_map_ && file_map_->Find(block->key)) ||
                       (object_map_ && object_map_->Find(block->key));
    if (!copied.ok() || !below) {
      memory_map_.Abandon(slot);
      continue;
    }
    memory_map_.Fill(slot, block->bytes, 0, /*dirty=*/false);
    ++facts_.promotions;
    ++facts_.tiers[Number(Tier::kMemory)].written;
  }
  WakePuts();
}

}  // namespace shunt::client::kv
