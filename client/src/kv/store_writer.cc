// The writer: what is in memory alone goes down in batches, what was given up or erased is
// un-named, and who flushes waits for both.
#include <algorithm>
#include <chrono>
#include <utility>

#include "client/src/kv/store.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client::kv {
namespace {

// One transfer, one sync: a sync costs as much for many blocks as for one.
constexpr uint64_t kBatchBlocks = 64;
constexpr uint64_t kBatchBytes = uint64_t{64} << 20;

}  // namespace

size_t Store::BatchBlocks() const {
  return std::clamp<uint64_t>(kBatchBytes / slot_bytes_, 1, kBatchBlocks);
}

// Less than a quarter of memory could be used at once.
bool Store::WantsRoom() const {
  if (std::any_of(parked_.begin(), parked_.end(), [](const auto& put) { return put->for_room; })) {
    return true;
  }
  const SlotMap::Counts counts = memory_map_.counts();
  return counts.free + counts.clean < std::max<uint64_t>(1, memory_map_.slots() / 4);
}

bool Store::WriterHasWork() const {
  if (!flushes_.empty()) return true;
  if (writer_failed_) return false;
  for (const auto* map : {&file_map_, &object_map_}) {
    if (*map && !((*map)->StillNamed().empty() && (*map)->Doomed().empty())) return true;
  }
  return !pinned_ && WantsRoom() && !memory_map_.Oldest(1, /*dirty=*/true).empty();
}

void Store::WriterLoop() {
  Lock lock(mutex_);
  while (true) {
    writer_changed_.wait(lock, [this] { return stop_ || WriterHasWork(); });
    // What is erased stays erased, if it can be.
    if (stop_) break;
    const absl::Status status = WriterStep(lock);
    if (status.ok()) {
      writer_failed_ = false;
    } else {
      WriterFailed(lock, status);
    }
  }
  for (const Tier tier : {Tier::kFile, Tier::kObjects}) (void)UnnameDoomed(lock, tier);
}

absl::StatusOr<std::shared_ptr<Call>> Store::Flush(int64_t deadline_ns) {
  if (!HasLower()) {
    return absl::FailedPreconditionError(
        "the store has neither a directory nor objects: nothing in it is durable");
  }
  FlushState flush;
  flush.call = std::make_shared<Call>(0, deadline_ns);
  std::shared_ptr<Call> call = flush.call;
  Lock lock(mutex_);
  SHUNT_RETURN_IF_ERROR(BeginCall(lock));
  for (uint32_t slot = 0; slot < memory_map_.slots(); ++slot) {
    if (memory_map_.dirty(slot)) flush.left.emplace_back(slot, memory_map_.generation(slot));
  }
  flushes_.push_back(std::move(flush));
  writer_changed_.notify_all();
  memory_changed_.notify_all();  // its deadline may be the first
  return call;
}

absl::Status Store::WriterStep(Lock& lock) {
  SHUNT_RETURN_IF_ERROR(UnnameDoomed(lock, Tier::kFile));
  SHUNT_RETURN_IF_ERROR(UnnameDoomed(lock, Tier::kObjects));
  const std::vector<uint32_t> slots = NextDirty();
  if (!slots.empty()) {
    for (const uint32_t slot : slots) memory_map_.Pin(slot);
    const absl::Status written = file_map_ ? WriteToFile(lock, slots) : WriteToObjects(lock, slots);
    for (const uint32_t slot : slots) UnpinMemory(slot);
    SHUNT_RETURN_IF_ERROR(written);
    WakePuts();
  }
  return EndFlushes(lock);
}

// Frees what nobody finds any more: first the index must not name it. What is being read is
// un-named too, as its key may be put again before that has ended. When it returns OK the index
// names no doomed slot, until the lock is left.
absl::Status Store::UnnameDoomed(Lock& lock, Tier tier) {
  std::optional<SlotMap>& map = tier == Tier::kFile ? file_map_ : object_map_;
  if (!map) return absl::OkStatus();
  for (auto named = map->StillNamed(); !named.empty(); named = map->StillNamed()) {
    if (index_ != nullptr) {
      std::vector<shunt::tiers::Named> blocks;
      blocks.reserve(named.size());
      for (const uint32_t slot : named) blocks.push_back({slot, map->block(slot)});
      lock.unlock();
      const absl::Status unnamed = shunt::tiers::Unname(tier, blocks, index_.get());
      lock.lock();
      SHUNT_RETURN_IF_ERROR(unnamed);
      facts_.rewrites = index_->rewrites();
    }
    for (const uint32_t slot : named) map->SetUnnamed(slot);
  }
  for (const uint32_t slot : map->Doomed()) map->Free(slot);
  return absl::OkStatus();
}

// What the first flush waits for, or the oldest.
std::vector<uint32_t> Store::NextDirty() {
  const size_t most = file_map_ ? std::min<size_t>(BatchBlocks(), file_map_->slots())
                                : std::min<size_t>(BatchBlocks(), object_map_->slots());
  if (flushes_.empty()) {
    return WantsRoom() ? memory_map_.Oldest(most, /*dirty=*/true) : std::vector<uint32_t>();
  }
  auto& left = flushes_.front().left;
  std::erase_if(left, [this](const auto& one) {
    return !memory_map_.dirty(one.first) || memory_map_.generation(one.first) != one.second;
  });
  std::vector<uint32_t> slots;
  for (const auto& [slot, generation] : left) {
    if (slots.size() == most) break;
    slots.push_back(slot);
  }
  return slots;
}

// Free slots in the file, as many as there can be up to `count`.
absl::Status Store::MakeFileRoom(Lock& lock, size_t count) {
  const uint64_t free = file_map_->counts().free;
  if (free >= count) return UnnameDoomed(lock, Tier::kFile);
  const std::vector<uint32_t> oldest = OldestBelow(*file_map_, count - free);
  if (object_map_) SHUNT_RETURN_IF_ERROR(DemoteToObjects(lock, oldest));
  for (const uint32_t slot : oldest) {
    if (!file_map_->held(slot) || file_map_->pins(slot) > 0) continue;  // erased, or asked for
    const std::string key = file_map_->block(slot).key;
    file_map_->Doom(slot);
    ++facts_.tiers[Number(Tier::kFile)].evictions;
    if (!LostBelow(key)) ++facts_.dropped;
  }
  return UnnameDoomed(lock, Tier::kFile);
}

absl::Status Store::WriteToFile(Lock& lock, const std::vector<uint32_t>& slots) {
  SHUNT_RETURN_IF_ERROR(MakeFileRoom(lock, slots.size()));
  std::vector<shunt::tiers::Written> written;
  std::vector<uint32_t> from;
  for (const uint32_t slot : slots) {
    if (!memory_map_.held(slot)) continue;  // erased meanwhile
    const shunt::tiers::Block& block = memory_map_.block(slot);
    const auto file_slot = file_map_->Reserve(block.key);
    if (!file_slot) break;
    written.push_back({{*file_slot, block}, MemoryAt(slot)});
    from.push_back(slot);
  }
  if (written.empty()) {
    // All that could be given up is being read: a reader will say when it has ended.
    pinned_ = !file_map_->counts().free && OldestBelow(*file_map_, 1).empty();
    WaitUnpinned(lock);
    return absl::OkStatus();
  }
  lock.unlock();
  for (shunt::tiers::Written& one : written) {
    one.named.block.sum = shunt::tiers::Checksum(0, std::span(one.data, one.named.block.bytes));
  }
  absl::Status done = shunt::tiers::WriteDown(written, file_.get(), index_.get());
  lock.lock();
  for (size_t i = 0; i < written.size(); ++i) {
    const auto file_slot = static_cast<uint32_t>(written[i].named.slot);
    if (!done.ok()) {
      file_map_->Abandon(file_slot);
      continue;
    }
    const shunt::tiers::Block& block = written[i].named.block;
    file_map_->Fill(file_slot, block.bytes, block.sum, /*dirty=*/false);
    ++facts_.tiers[Number(Tier::kFile)].written;
    if (memory_map_.held(from[i])) {
      memory_map_.SetDirty(from[i], false);
    } else {
      file_map_->Doom(file_slot);  // erased meanwhile
    }
  }
  return done;
}

absl::Status Store::WriteToObjects(Lock& lock, const std::vector<uint32_t>& slots) {
  for (const uint32_t slot : slots) {
    if (NobodyWaits()) return absl::CancelledError("the store is being closed");
    SHUNT_ASSIGN_OR_RETURN(const bool room, MakeObjectRoom(lock));
    if (!room) {
      // All objects are being read: as it is with slots of the file.
      pinned_ = true;
      WaitUnpinned(lock);
      return absl::OkStatus();
    }
    if (!memory_map_.held(slot)) continue;
    const shunt::tiers::Block block = memory_map_.block(slot);
    SHUNT_RETURN_IF_ERROR(PutObject(lock, block, MemoryAt(slot)));
    const auto object = object_map_->Find(block.key);
    if (memory_map_.held(slot)) {
      memory_map_.SetDirty(slot, false);
      WakePuts();
    } else if (object) {
      object_map_->Doom(*object);
    }
  }
  return absl::OkStatus();
}

// Blocks that the file gives up, one after the other through memory of the writer's own. One that
// cannot be moved stays where it is, and is dropped with its slot. A server or a daemon that does
// not answer is asked once: the others would wait as long, and with them puts, flushes and Close.
absl::Status Store::DemoteToObjects(Lock& lock, const std::vector<uint32_t>& file_slots) {
  for (const uint32_t slot : file_slots) {
    ExpireFlushes(lock);
    if (NobodyWaits()) return absl::CancelledError("the store is being closed");
    if (!file_map_->held(slot) || object_map_->Find(file_map_->block(slot).key)) continue;
    const shunt::tiers::Block block = file_map_->block(slot);
    file_map_->Pin(slot);
    lock.unlock();
    bool wrong = false;
    const Wanted wanted{slot, block.key, staging_data_, block.bytes};
    absl::Status status =
        file_->Read(std::span(&wanted, 1), DeadlineAfterNs(std::chrono::seconds(60)));
    if (status.ok() &&
        shunt::tiers::Checksum(0, std::span(staging_data_, block.bytes)) != block.sum) {
      status = absl::DataLossError("the block's checksum is not what the index says");
      wrong = true;
    }
    lock.lock();
    if (wrong) ++facts_.corrupt;
    if (status.ok()) status = PutObject(lock, block, staging_data_);
    file_map_->Unpin(slot);
    if (!status.ok()) {
      ++facts_.errors;
      // UNKNOWN: no answer, and the server may have it.
      if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
          absl::IsUnknown(status)) {
        break;
      }
    } else if (!file_map_->held(slot)) {
      if (const auto object = object_map_->Find(block.key)) object_map_->Doom(*object);  // erased
    }
  }
  return absl::OkStatus();
}

// False: all objects are being read.
absl::StatusOr<bool> Store::MakeObjectRoom(Lock& lock) {
  if (object_map_->counts().free == 0) {
    for (const uint32_t old : OldestBelow(*object_map_, BatchBlocks())) {
      const std::string key = object_map_->block(old).key;
      object_map_->Doom(old);
      ++facts_.tiers[Number(Tier::kObjects)].evictions;
      if (!LostBelow(key)) ++facts_.dropped;
      if (object_map_->counts().doomed >= std::max<uint64_t>(1, object_map_->slots() / 16)) break;
    }
  }
  SHUNT_RETURN_IF_ERROR(UnnameDoomed(lock, Tier::kObjects));
  return object_map_->counts().free > 0;
}

absl::Status Store::PutObject(Lock& lock, const shunt::tiers::Block& block, const std::byte* data) {
  SHUNT_ASSIGN_OR_RETURN(const bool room, MakeObjectRoom(lock));
  if (!room) return absl::ResourceExhaustedError("all objects are being read");
  const auto slot = object_map_->Reserve(block.key);
  lock.unlock();
  shunt::tiers::Block named = block;
  named.sum = shunt::tiers::Checksum(0, std::span(data, block.bytes));
  absl::Status status = objects_->Write(named.key, data, named.bytes);
  if (status.ok() && index_ != nullptr) {
    const shunt::tiers::IndexRecord record{true, Tier::kObjects, *slot, named};
    status = index_->Append(std::span(&record, 1));
  }
  lock.lock();
  if (!status.ok()) {
    object_map_->Abandon(*slot);
    return status;
  }
  object_map_->Fill(*slot, named.bytes, named.sum, /*dirty=*/false);
  ++facts_.tiers[Number(Tier::kObjects)].written;
  return absl::OkStatus();
}

absl::Status Store::EndFlushes(Lock& lock) {
  while (!flushes_.empty()) {
    const std::shared_ptr<Call> call = flushes_.front().call;
    // It may end while the lock is left: its deadline passes.
    const auto ended = [&] { return flushes_.empty() || flushes_.front().call != call; };
    // Erased, or given up, while the last batch was written: it must not be found again either.
    for (const Tier tier : {Tier::kFile, Tier::kObjects}) {
      SHUNT_RETURN_IF_ERROR(UnnameDoomed(lock, tier));
    }
    ExpireFlushes(lock);
    if (ended()) continue;
    auto& left = flushes_.front().left;
    std::erase_if(left, [this](const auto& one) {
      return !memory_map_.dirty(one.first) || memory_map_.generation(one.first) != one.second;
    });
    if (!left.empty()) return absl::OkStatus();
    if (index_ != nullptr) {
      lock.unlock();
      const absl::Status synced = index_->Sync();
      lock.lock();
      SHUNT_RETURN_IF_ERROR(synced);
    }
    if (ended()) continue;
    EndCall(lock, call.get());
    flushes_.pop_front();
  }
  return absl::OkStatus();
}

int64_t Store::FirstFlushNs() const {
  int64_t first_ns = kNeverNs;
  for (const FlushState& flush : flushes_) first_ns = std::min(first_ns, flush.call->deadline_ns());
  return first_ns;
}

// By the memory thread too, as the writer may wait for a disk or a server.
void Store::ExpireFlushes(Lock& lock) {
  const int64_t now_ns = NowNs();
  const size_t expired = std::erase_if(flushes_, [&](const FlushState& flush) {
    if (flush.call->deadline_ns() > now_ns) return false;
    flush.call->Fail(absl::DeadlineExceededError("not all blocks could be written in time"));
    EndCall(lock, flush.call.get());
    return true;
  });
  if (expired > 0) writer_changed_.notify_all();
}

// Until a reader has ended, if a flush waits for that.
void Store::WaitUnpinned(Lock& lock) {
  while (pinned_ && !flushes_.empty()) {
    const std::chrono::nanoseconds first(FirstFlushNs());
    writer_changed_.wait_until(lock, std::chrono::steady_clock::time_point(first));
    ExpireFlushes(lock);
  }
}

// Those that wait learn why. What nobody waits for is tried again when somebody does.
void Store::WriterFailed(Lock& lock, const absl::Status& status) {
  ++facts_.errors;
  writer_failed_ = true;
  for (FlushState& flush : std::exchange(flushes_, {})) {
    flush.call->Fail(status);
    EndCall(lock, flush.call.get());
  }
  std::deque<PutPtr> still;
  for (PutPtr& put : std::exchange(parked_, {})) {
    if (put->for_room) {
      FailPut(lock, put, status);
    } else {
      still.push_back(std::move(put));
    }
  }
  parked_ = std::move(still);
}

}  // namespace shunt::client::kv
