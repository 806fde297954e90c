// The last calls of one rank, in shared memory: written by whoever posts for the rank, read by the
// daemon when somebody asks. A ring of lines that only grows over its oldest; nothing waits for it
// and nothing is decided by it.
//
// Everything in it is hostile to a reader: it is copied, bounded, and shown. A line that is being
// written while it is read is left out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shunt::recorder {

// Of a rank; a ring's size is a power of two, or 0 for none.
inline constexpr uint32_t kCallsMax = 256;

enum class CallState : uint64_t { kOpen = 0, kSucceeded = 1, kFailed = 2 };

// One call, a cache line of its own: the next call's line is not shared with a reader of this one.
struct alignas(64) CallNote {
  std::atomic<uint64_t> number;  // of the rank's calls, from 1; 0: none, or being written
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> words;  // of its caller, who reads them back
  std::atomic<uint64_t> count;
  std::atomic<int64_t> posted_ns;  // CLOCK_MONOTONIC, as all of these
  std::atomic<int64_t> moved_ns;   // the rank began to move payload; 0: no such moment
  std::atomic<int64_t> ended_ns;   // 0 while it is open
  std::atomic<uint64_t> state;     // CallState
};
static_assert(sizeof(CallNote) == 64);

// A copy of one.
struct Call {
  uint64_t number = 0;
  uint64_t sequence = 0;
  uint64_t words = 0;
  uint64_t count = 0;
  int64_t posted_ns = 0;
  int64_t moved_ns = 0;
  int64_t ended_ns = 0;
  CallState state = CallState::kOpen;
};

// A view; does not own the memory. One writer at a time.
class CallRing {
 public:
  CallRing() = default;
  // `notes` has `size` lines, zeroed at first.
  CallRing(CallNote* notes, uint32_t size) : notes_(notes), size_(size) {}

  uint32_t size() const { return size_; }

  // The call of that number (≥ 1) begins: it takes the place of the oldest.
  void Begin(uint64_t number, uint64_t sequence, uint64_t words, uint64_t count,
             int64_t posted_ns) const {
    if (size_ == 0) return;
    CallNote& note = At(number);
    note.number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    note.sequence.store(sequence, std::memory_order_relaxed);
    note.words.store(words, std::memory_order_relaxed);
    note.count.store(count, std::memory_order_relaxed);
    note.posted_ns.store(posted_ns, std::memory_order_relaxed);
    note.moved_ns.store(0, std::memory_order_relaxed);
    note.ended_ns.store(0, std::memory_order_relaxed);
    note.state.store(0, std::memory_order_relaxed);
    note.number.store(number, std::memory_order_release);
  }
  // Nothing happens if a later call has taken its place.
  void Move(uint64_t number, int64_t now_ns) const {
    if (Holds(number)) At(number).moved_ns.store(now_ns, std::memory_order_relaxed);
  }
  void SetWords(uint64_t number, uint64_t words) const {
    if (Holds(number)) At(number).words.store(words, std::memory_order_relaxed);
  }
  void End(uint64_t number, int64_t now_ns, bool succeeded) const {
    if (!Holds(number)) return;
    CallNote& note = At(number);
    note.state.store(static_cast<uint64_t>(succeeded ? CallState::kSucceeded : CallState::kFailed),
                     std::memory_order_relaxed);
    note.ended_ns.store(now_ns, std::memory_order_release);
  }
  // The newest open call that `matches(call)` ends; for who does not know its number.
  template <typename F>
  void EndLast(uint64_t newest, int64_t now_ns, bool succeeded, F&& matches) const {
    for (uint32_t back = 0; back < size_ && back < newest; ++back) {
      Call call;
      if (!Read(newest - back, &call) || !matches(call)) continue;
      if (call.state == CallState::kOpen) End(call.number, now_ns, succeeded);
      return;
    }
  }

  // False if there is no such call any more, or it is just being written.
  bool Read(uint64_t number, Call* call) const;
  // All that can be read, oldest first; times that can't be are made 0: after `now_ns`, ended
  // before it began.
  std::vector<Call> ReadAll(uint64_t newest, int64_t now_ns) const;

 private:
  bool Holds(uint64_t number) const {
    return size_ != 0 && number != 0 && At(number).number.load(std::memory_order_relaxed) == number;
  }
  CallNote& At(uint64_t number) const { return notes_[number & (size_ - 1)]; }

  CallNote* notes_ = nullptr;
  uint32_t size_ = 0;
};

// The size of a ring for that many calls: the power of two that holds them, at most kCallsMax.
uint32_t RingSize(uint64_t calls);

}  // namespace shunt::recorder
