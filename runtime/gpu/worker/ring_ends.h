// Both ends of a worker's ring (protocol.h): commands one way, their ends the other. Indices count
// up for ever; a side that sleeps says so, and who takes that back rings its doorbell.
//
// Both sides are ours, so entries are plain memory. What a client may write lies elsewhere (gates).
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/core/fd.h"
#include "runtime/gpu/worker/protocol.h"

namespace shunt::gpu {

// shuntd's end. Push by one thread at a time, Pop by one thread at a time; the two may run at once.
// Owns neither the memory nor the doorbell.
class RingOwner {
 public:
  RingOwner() = default;
  // `ring` is fresh and zeroed, or this end's from before.
  RingOwner(Ring* ring, int worker_doorbell) : ring_(ring), doorbell_(worker_doorbell) {}

  // The next slot, zeroed as far as its last command went, or null: the worker has not taken the
  // one that lies there. Push hands it over.
  Command* Slot();
  void Push();
  // False: nothing there.
  bool Pop(Done* done);

  // Before sleeping: the worker rings from now on; true if something is there already.
  bool MayNotSleep();
  void Awake() { ring_->shuntd_sleeps.store(0, std::memory_order_relaxed); }

  uint64_t turns() const { return ring_->turns.load(std::memory_order_relaxed); }
  bool worker_sleeps() const { return ring_->worker_sleeps.load(std::memory_order_relaxed) != 0; }

 private:
  Ring* ring_ = nullptr;
  int doorbell_ = -1;
  uint32_t command_tail_ = 0;
  uint32_t done_head_ = 0;
};

// The worker's end. Of one thread.
class RingWorker {
 public:
  RingWorker(Ring* ring, int shuntd_doorbell) : ring_(ring), doorbell_(shuntd_doorbell) {}

  // The oldest command, or null. It stays until Taken.
  const Command* Next() const {
    if (ring_->command_tail.load(std::memory_order_acquire) == command_head_) return nullptr;
    return &ring_->command[command_head_ % kCommandSlots];
  }
  void Taken() { ring_->command_head.store(++command_head_, std::memory_order_release); }
  // False: no room. There always is for what does not repeat, as shuntd counts what is under way.
  bool Push(const Done& done);

  const Run* runs(uint32_t batch) const { return ring_->run[batch % kRunBatches]; }

  bool MayNotSleep();
  void Awake() { ring_->worker_sleeps.store(0, std::memory_order_relaxed); }
  void Turn() { ring_->turns.store(++turns_, std::memory_order_relaxed); }

 private:
  Ring* const ring_;
  const int doorbell_;
  uint32_t command_head_ = 0;
  uint32_t done_tail_ = 0;
  uint64_t turns_ = 0;
};

// Copies what is in use of a command: a short one is short.
void CopyCommand(Command* to, const Command& from);

}  // namespace shunt::gpu
