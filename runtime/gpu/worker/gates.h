// The words where clients' streams and the worker meet (protocol.h, GateWords), as the CPU reads
// and writes them. Anybody may have written anything there: a word decides when, never what.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/gpu/worker/protocol.h"

namespace shunt::gpu {

inline GateWords* WordsOf(const Gate& gate) {
  return reinterpret_cast<GateWords*>(gate.words);  // NOLINT(performance-no-int-to-ptr)
}

// True once the gate's stream has come there.
inline bool Triggered(const Gate& gate, bool repeats) {
  if (gate.words == 0) return true;
  const uint32_t seen = WordsOf(gate)->trigger.load(std::memory_order_acquire);
  return repeats ? seen == 1 : static_cast<int32_t>(seen - gate.generation) >= 0;
}

// Of a repeating one, before it begins: the next round is the client's to trigger.
inline void TakeBack(const Gate& gate) {
  if (gate.words != 0) WordsOf(gate)->trigger.store(0, std::memory_order_release);
}

// What the kernel does at the end, for an operation that has none.
inline void Release(const Gate& gate, bool repeats) {
  if (gate.words == 0) return;
  WordsOf(gate)->done.store(repeats ? 1 : gate.generation, std::memory_order_release);
}

}  // namespace shunt::gpu
