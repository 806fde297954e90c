#include "runtime/recorder/call_ring.h"

#include <algorithm>
#include <bit>

namespace shunt::recorder {

bool CallRing::Read(uint64_t number, Call* call) const {
  if (size_ == 0 || number == 0) return false;
  const CallNote& note = At(number);
  if (note.number.load(std::memory_order_acquire) != number) return false;
  call->number = number;
  call->sequence = note.sequence.load(std::memory_order_relaxed);
  call->words = note.words.load(std::memory_order_relaxed);
  call->count = note.count.load(std::memory_order_relaxed);
  call->posted_ns = note.posted_ns.load(std::memory_order_relaxed);
  call->moved_ns = note.moved_ns.load(std::memory_order_relaxed);
  call->ended_ns = note.ended_ns.load(std::memory_order_acquire);
  const uint64_t state = note.state.load(std::memory_order_relaxed);
  call->state = state == 1   ? CallState::kSucceeded
                : state == 2 ? CallState::kFailed
                             : CallState::kOpen;
  std::atomic_thread_fence(std::memory_order_acquire);
  return note.number.load(std::memory_order_relaxed) == number;
}

std::vector<Call> CallRing::ReadAll(uint64_t newest, int64_t now_ns) const {
  std::vector<Call> calls;
  const uint64_t count = std::min<uint64_t>(newest, size_);
  for (uint64_t number = newest - count + 1; count != 0 && number <= newest && number != 0;
       ++number) {
    Call call;
    if (!Read(number, &call)) continue;
    if (call.posted_ns < 0 || call.posted_ns > now_ns) call.posted_ns = 0;
    if (call.moved_ns < call.posted_ns || call.moved_ns > now_ns) call.moved_ns = 0;
    if (call.ended_ns > now_ns) call.ended_ns = now_ns;
    if (call.ended_ns < call.posted_ns) call.ended_ns = 0;
    if (call.state == CallState::kOpen) call.ended_ns = 0;
    calls.push_back(call);
  }
  return calls;
}

uint32_t RingSize(uint64_t calls) {
  if (calls == 0) return 0;
  return static_cast<uint32_t>(std::bit_ceil(std::min<uint64_t>(calls, kCallsMax)));
}

}  // namespace shunt::recorder
