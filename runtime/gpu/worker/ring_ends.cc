#include "runtime/gpu/worker/ring_ends.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace shunt::gpu {
namespace {

// Against MayNotSleep of the other side, all four accesses sequentially consistent: either it sees
// the new index, or this sees that it sleeps.
void Publish(std::atomic<uint32_t>* index, uint32_t value, std::atomic<uint32_t>* sleeps,
             int doorbell) {
  index->store(value, std::memory_order_seq_cst);
  if (sleeps->load(std::memory_order_seq_cst) != 0 &&
      sleeps->exchange(0, std::memory_order_relaxed) != 0) {
    SignalEventFd(doorbell);
  }
}

uint32_t InUse(uint32_t entries) { return std::min<uint32_t>(entries, kGatesMax); }

}  // namespace

Command* RingOwner::Slot() {
  if (command_tail_ - ring_->command_head.load(std::memory_order_acquire) >= kCommandSlots) {
    return nullptr;
  }
  Command* const slot = &ring_->command[command_tail_ % kCommandSlots];
  std::memset(slot->gate, 0, InUse(slot->gates) * sizeof(Gate));
  std::memset(slot->place, 0, InUse(slot->places) * sizeof(Place));
  std::memset(static_cast<void*>(slot), 0, offsetof(Command, gate));
  return slot;
}

void RingOwner::Push() {
  Publish(&ring_->command_tail, ++command_tail_, &ring_->worker_sleeps, doorbell_);
}

bool RingOwner::Pop(Done* done) {
  if (ring_->done_tail.load(std::memory_order_acquire) == done_head_) return false;
  *done = ring_->done[done_head_ % kCommandSlots];
  ring_->done_head.store(++done_head_, std::memory_order_release);
  return true;
}

bool RingOwner::MayNotSleep() {
  ring_->shuntd_sleeps.store(1, std::memory_order_seq_cst);
  return ring_->done_tail.load(std::memory_order_seq_cst) != done_head_;
}

bool RingWorker::Push(const Done& done) {
  if (done_tail_ - ring_->done_head.load(std::memory_order_acquire) >= kCommandSlots) return false;
  ring_->done[done_tail_ % kCommandSlots] = done;
  Publish(&ring_->done_tail, ++done_tail_, &ring_->shuntd_sleeps, doorbell_);
  return true;
}

bool RingWorker::MayNotSleep() {
  ring_->worker_sleeps.store(1, std::memory_order_seq_cst);
  return ring_->command_tail.load(std::memory_order_seq_cst) != command_head_;
}

void CopyCommand(Command* to, const Command& from) {
  std::memcpy(static_cast<void*>(to), &from, offsetof(Command, gate));
  std::memcpy(to->gate, from.gate, InUse(from.gates) * sizeof(Gate));
  std::memcpy(to->place, from.place, InUse(from.places) * sizeof(Place));
}

}  // namespace shunt::gpu
