// Puts: as many blocks at a time as there are slots for, in one transfer.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/kv/store.h"
#include "runtime/core/status.h"

namespace shunt::client::kv {

absl::StatusOr<std::shared_ptr<Call>> Store::Put(std::vector<CallBlock> blocks,
                                                 int64_t deadline_ns) {
  SHUNT_RETURN_IF_ERROR(CheckBlocks(blocks));
  auto call = std::make_shared<Call>(blocks.size(), deadline_ns);
  auto put = std::make_shared<PutState>();
  put->call = call;
  put->blocks = std::move(blocks);
  Lock lock(mutex_);
  SHUNT_RETURN_IF_ERROR(BeginCall(lock));
  facts_.puts += put->blocks.size();
  AdvancePut(lock, put);
  return call;
}

void Store::AdvancePut(Lock& lock, const PutPtr& put) {
  std::vector<std::pair<size_t, uint32_t>> to;  // block, slot
  std::vector<Span> from, slots;
  for (; put->next < put->blocks.size(); ++put->next) {
    const CallBlock& block = put->blocks[put->next];
    std::optional<Tier> tier;
    ForgetDoubted(block.key);
    uint64_t bytes = 0;
    if (TouchPresent(block.key, &tier, &bytes)) {
      ++facts_.puts_present;
      if (bytes != block.bytes) {
        put->call->Set(put->next, {absl::StatusCode::kInvalidArgument, tier, bytes});
        put->call->Fail(absl::InvalidArgumentError(absl::StrCat(
            "blocks[", put->next, "] has ", block.bytes, " bytes, and the block under its key, ",
            tiers::Hex(block.key), ", has ", bytes, ": expected a key's bytes never to change")));
        continue;
      }
      put->call->Set(put->next, {absl::StatusCode::kOk, tier, block.bytes});
      continue;
    }
    // Another put of the key, or this one: it is there when that has ended, or is to be put then.
    put->for_room = !memory_map_.Filling(block.key);
    if (!put->for_room) break;
    const auto slot = TakeMemorySlot(block.key);
    if (!slot) break;
    to.emplace_back(put->next, *slot);
    from.push_back({block.data, block.bytes});
    slots.push_back({MemoryAt(*slot), block.bytes});
  }
  if (!to.empty()) {
    // Posting may ask the daemon for a list. The slots are nobody else's meanwhile.
    lock.unlock();
    auto transfer = mover_.Start(Way::kOutOfMemory, from, slots, put->call->deadline_ns());
    lock.lock();
    in_flight_.push_back({std::move(transfer),
                          [this, put, to = std::move(to)](Lock& held, const absl::Status& status) {
                            PutArrived(held, put, to, status);
                          }});
    memory_changed_.notify_all();
    return;
  }
  if (put->next == put->blocks.size()) return EndCall(lock, put->call.get());
  if (closing_) {
    return FailPut(lock, put, absl::CancelledError("the store was closed while the put waited"));
  }
  parked_.push_back(put);
  writer_failed_ = false;
  writer_changed_.notify_all();
  memory_changed_.notify_all();  // its deadline may be the first
}

void Store::PutArrived(Lock& lock, const PutPtr& put,
                       const std::vector<std::pair<size_t, uint32_t>>& to,
                       const absl::Status& status) {
  for (const auto& [number, slot] : to) {
    const uint64_t bytes = put->blocks[number].bytes;
    if (!status.ok()) {
      memory_map_.Abandon(slot);
      put->call->Set(number, {status.code(), std::nullopt, bytes});
      continue;
    }
    memory_map_.Fill(slot, bytes, 0, /*dirty=*/HasLower());
    ++facts_.tiers[Number(Tier::kMemory)].written;
    facts_.put_bytes += bytes;
    put->call->Set(number, {absl::StatusCode::kOk, Tier::kMemory, bytes});
  }
  WakePuts();
  writer_changed_.notify_all();
  if (!status.ok()) return FailPut(lock, put, status);
  AdvancePut(lock, put);
}

void Store::FailPut(Lock& lock, const PutPtr& put, const absl::Status& status) {
  for (; put->next < put->blocks.size(); ++put->next) {
    put->call->Set(put->next, {status.code(), std::nullopt, put->blocks[put->next].bytes});
  }
  put->call->Fail(status);
  EndCall(lock, put->call.get());
}

}  // namespace shunt::client::kv
