// Whom kernels tell, and when: never before the output is there for all to see.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/core/types.h"
#include "tests/gpu/kernels_device_world.h"

namespace shunt::gpu::testing {
namespace {

constexpr uint32_t kWords = 100;
// Of these kernels write by turns all, and as many as the small form of their parameters holds.
constexpr uint32_t kFewWords = Small::kRanks;

// Output in host memory, where this thread can look at it while the GPU still works.
struct SignalsWorld : KernelsWorld {
  explicit SignalsWorld(uint64_t bytes)
      : words(driver),
        size(bytes),
        source(Value(driver.Allocate(2 * bytes))),
        beside(Value(driver.Allocate(2 * bytes))),
        output(static_cast<std::byte*>(AllocatePinnedHost(2 * bytes))) {}
  ~SignalsWorld() {
    (void)driver.Free(source);
    (void)driver.Free(beside);
    FreePinnedHost(output);
  }

  uint64_t* completion() { return reinterpret_cast<uint64_t*>(words.mapping.data() + 2048); }

  Signals Next() {
    ++serial;
    Signals signals{};
    signals.ticket = reinterpret_cast<uint32_t*>(ticket);
    signals.count = (serial - 1) / 4 % 2 == 0 ? kWords : kFewWords;
    signals.value = static_cast<uint32_t>(1000 * serial);
    signals.completion = completion();
    signals.completion_value = serial;
    for (uint32_t i = 0; i < signals.count; ++i) {
      signals.word[i] = reinterpret_cast<uint32_t*>(words.AddressOf(i));
      signals.values[i] = i;
    }
    return signals;
  }

  template <class Seen>
  void Await(const std::string& what, const Seen& seen) {
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!seen()) {
      if (std::chrono::steady_clock::now() < late) continue;
      FAIL(what << " has not come: " << driver.Query(stream).ToString());
    }
  }

  // What `launch` enqueues fills `output`, of `bytes` bytes, with the number of the round.
  template <class Launch>
  void Check(uint64_t bytes, const Launch& launch) {
    const auto round = static_cast<uint8_t>(1 + serial % 250);
    std::memset(output, 0, bytes);
    Ok(driver.FillAsync(source, round, 2 * size, stream));
    const Signals signals = Next();
    Ok(launch(signals));
    const auto first = static_cast<uint32_t>(serial % signals.count);
    Await("word " + std::to_string(first),
          [&] { return words.At(first).load(std::memory_order_acquire) == signals.value + first; });
    REQUIRE(std::to_integer<int>(output[0]) == round);
    REQUIRE(std::memcmp(output, output + 1, bytes - 1) == 0);
    Await("the completion",
          [&] { return std::atomic_ref(*completion()).load(std::memory_order_acquire) == serial; });
    for (uint32_t i = 0; i < signals.count; ++i) {
      REQUIRE(words.At(i).load(std::memory_order_relaxed) == signals.value + i);
    }
    Ok(driver.Synchronize(stream));
    uint32_t left = 1;
    CopyFromDevice(&left, ticket, sizeof(left));
    REQUIRE(left == 0);
  }

  Words words;
  const uint64_t size;
  const DevicePtr source, beside;
  std::byte* const output;
  uint64_t serial = 0;
};

TEST_CASE("who sees a word sees the output, and who sees the completion sees all words") {
  for (const uint64_t bytes : {100, 64 << 10, 4 << 20}) {
    SignalsWorld world(bytes);
    const DevicePtr output = reinterpret_cast<DevicePtr>(world.output);
    for (const bool within : {true, false}) {
      INFO(bytes << " bytes, signals " << (within ? "in the kernel" : "in one of their own"));
      Cut cut;
      cut.signal_blocks = within ? 1 << 20 : 0;
      world.kernels->set_cut(cut);
      const int rounds = bytes > 1 << 20 ? 20 : 200;
      for (int round = 0; round < rounds; ++round) {
        world.Check(bytes, [&](const Signals& signals) {
          ReduceParams params{};
          params.dtype = static_cast<uint8_t>(DataType::kUint8);
          params.redop = static_cast<uint8_t>(Redop::kMax);
          params.sources = params.destinations = 2;
          params.count = bytes;
          params.source[0] = world.source;
          params.source[1] = world.source + bytes;
          params.destination[0] = world.beside;
          params.destination[1] = output;
          params.signals = signals;
          return world.kernels->Reduce(params, world.stream);
        });
        world.Check(2 * bytes, [&](const Signals& signals) {
          SpreadParams params{};
          params.pattern = SpreadPattern::kFan;
          params.segments = params.destinations = 2;
          params.bytes = bytes;
          params.source[0] = world.source;
          params.source[1] = world.source + bytes;
          params.destination[0] = world.beside;
          params.destination[1] = output;
          params.signals = signals;
          return world.kernels->Spread(params, world.stream);
        });
        for (const uint32_t host : {0u, 1u}) {
          world.Check(bytes, [&](const Signals& signals) {
            MoveParams params{};
            params.host = host;
            params.runs = (world.serial - 1) / 8 % 2 == 0 ? Large::kRuns : Small::kRuns;
            params.bytes = bytes;
            const uint64_t piece = bytes / params.runs;
            for (uint32_t i = 0; i < params.runs; ++i) {
              const uint64_t length = i + 1 < params.runs ? piece : bytes - i * piece;
              params.few[i] = {world.source + i * piece, output + i * piece, length};
            }
            params.signals = signals;
            return world.kernels->Move(params, world.stream);
          });
        }
      }
    }
  }
}

TEST_CASE("signals alone come after all that the stream did before") {
  constexpr uint64_t kBytes = 4 << 20;
  SignalsWorld world(kBytes);
  for (int round = 0; round < 50; ++round) {
    world.Check(kBytes, [&](const Signals& signals) {
      Ok(world.driver.CopyAsync(reinterpret_cast<DevicePtr>(world.output), world.source, kBytes,
                                world.stream));
      return world.kernels->Signal(signals, world.stream);
    });
  }
}

TEST_CASE("an operation of nothing tells all the same, and one of too many is refused") {
  SignalsWorld world(64);
  Ok(world.driver.FillAsync(world.source, 1, 64, world.stream));
  for (int round = 0; round < 8; ++round) {
    const int kind = round % 3;
    const Signals signals = world.Next();
    if (kind == 0) {
      ReduceParams params{};
      params.sources = params.destinations = 1;
      params.signals = signals;
      Ok(world.kernels->Reduce(params, world.stream));
    } else if (kind == 1) {
      SpreadParams params{};
      params.signals = signals;
      Ok(world.kernels->Spread(params, world.stream));
    } else {
      MoveParams params{};
      params.signals = signals;
      Ok(world.kernels->Move(params, world.stream));
    }
    world.Await("the completion", [&] {
      return std::atomic_ref(*world.completion()).load(std::memory_order_acquire) == world.serial;
    });
    CHECK(world.words.At(signals.count - 1).load() == signals.value + signals.count - 1);
  }
  Signals many{};
  many.count = kRanksMax + 1;
  CHECK(std::string(world.kernels->Signal(many, world.stream).message()) ==
        "signals 129, expected at most 128");
}

}  // namespace
}  // namespace shunt::gpu::testing
