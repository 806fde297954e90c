// For the executor's test cases: a GPU, or the fake, with an executor, and memory on both sides.
#pragma once

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/core/fd.h"
#include "runtime/gpu/kernels/executor.h"
#include "runtime/gpu/worker/protocol.h"
#include "tests/gpu/cuda_program.h"
#include "tests/gpu/driver_world.h"

namespace shunt::gpu::testing {

// A worker's, without its loop: batches of runs, gates and a completion word in host memory.
struct ExecutorWorld : World {
  ExecutorWorld()
      : executor(Value(MakeKernelExecutor(&driver, Value(driver.Describe(0))))), words(driver) {
    file = Value(MakeSealedMemfd("runs", kBytes));
    mapping = Value(Mapping::Map(file.get(), kBytes));
    const DevicePtr address = Value(driver.RegisterHost(mapping.data(), kBytes));
    REQUIRE(address == reinterpret_cast<uint64_t>(mapping.data()));
  }
  ~ExecutorWorld() {
    executor.reset();
    (void)driver.UnregisterHost(mapping.data());
    for (const DevicePtr pointer : memory) (void)driver.Free(pointer);
  }

  // Poisoned.
  DevicePtr Allocate(uint64_t bytes) {
    memory.push_back(Value(driver.Allocate(bytes)));
    Ok(driver.FillAsync(memory.back(), 0xa5, bytes, stream));
    Ok(driver.Synchronize(stream));
    return memory.back();
  }

  std::vector<std::byte> Read(DevicePtr from, uint64_t bytes) {
    std::vector<std::byte> out(bytes);
    if (bytes > 0) CopyFromDevice(out.data(), from, bytes);
    return out;
  }

  Run* runs(uint32_t batch) { return reinterpret_cast<Run*>(mapping.data()) + batch * kRuns; }
  // Host memory behind the runs.
  std::byte* host() { return mapping.data() + kBytes - kHost; }

  Gate GateAt(size_t index, uint32_t generation) {
    return {reinterpret_cast<uint64_t>(words.mapping.data() + 8 * index), words.address + 8 * index,
            generation, 0};
  }
  uint32_t DoneOf(const Gate& gate) {
    return reinterpret_cast<GateWords*>(gate.words)->done.load(std::memory_order_acquire);
  }

  // Each has its own completion word, the last ones of the page.
  absl::Status Begin(const Command& command, uint64_t value = 1) {
    completion = reinterpret_cast<uint64_t*>(words.mapping.data() + 4096) - 1 - command.id % 64;
    return executor->Begin(command, runs(command.batch), completion, value);
  }
  void Await(const Command& command, uint64_t value = 1) {
    const std::atomic_ref<uint64_t> word(
        *(reinterpret_cast<uint64_t*>(words.mapping.data() + 4096) - 1 - command.id % 64));
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (word.load(std::memory_order_acquire) != value) {
      INFO("command " << command.id << " has not ended: " << executor->Health().ToString());
      REQUIRE(std::chrono::steady_clock::now() < late);
      std::this_thread::yield();
    }
  }
  void Execute(const Command& command, uint64_t value = 1) {
    Ok(Begin(command, value));
    Await(command, value);
  }

  static constexpr uint32_t kRuns = 4096;
  static constexpr uint64_t kHost = 4 << 20;
  static constexpr uint64_t kBytes = kRunBatches * kRuns * sizeof(Run) + kHost;

  std::unique_ptr<Executor> executor;
  Words words;
  UniqueFd file;
  Mapping mapping;
  uint64_t* completion = nullptr;
  std::vector<DevicePtr> memory;
};

}  // namespace shunt::gpu::testing
