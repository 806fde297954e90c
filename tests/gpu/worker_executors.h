// What launches in tests of the worker: the CPU, when the test says so.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "runtime/gpu/worker/gates.h"
#include "runtime/gpu/worker/worker.h"

namespace shunt::gpu {

// Does a copy as its kernel would, and says that it has ended.
inline void RunOnCpu(const Command& command, const Run* runs) {
  if (command.kind == CommandKind::kMove) {
    for (uint32_t i = 0; i < command.runs; ++i) {
      std::memcpy(reinterpret_cast<void*>(runs[i].destination),
                  reinterpret_cast<const void*>(runs[i].source), runs[i].bytes);
    }
  } else if (command.kind == CommandKind::kCopy) {
    std::memcpy(reinterpret_cast<void*>(command.place[0].out),
                reinterpret_cast<const void*>(command.place[0].in), command.bytes);
  }
  for (uint32_t i = 0; i < command.gates; ++i) {
    Gate gate = command.gate[i];
    gate.words = gate.device_words;
    Release(gate, (command.flags & kRepeats) != 0);
  }
}

// Keeps what has begun until the test has it end.
class HeldExecutor : public Executor {
 public:
  absl::Status Begin(const Command& command, const Run* runs, uint64_t* completion,
                     uint64_t value) override {
    if (!next_begin.ok()) return std::exchange(next_begin, absl::OkStatus());
    begun.push_back(command.id);
    held.push_back({command, runs, completion, value});
    return absl::OkStatus();
  }
  absl::Status Health() override { return health; }

  // Ends the oldest.
  void EndOne() {
    const Held& one = held.front();
    RunOnCpu(one.command, one.runs);
    std::atomic_ref<uint64_t>(*one.completion).store(one.value, std::memory_order_release);
    held.pop_front();
  }

  struct Held {
    Command command;
    const Run* runs;
    uint64_t* completion;
    uint64_t value;
  };
  std::deque<Held> held;
  std::vector<uint64_t> begun;
  absl::Status next_begin, health;
};

}  // namespace shunt::gpu
