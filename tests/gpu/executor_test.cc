// Commands as kernels: what they leave in memory, and whom they tell. The same on the fake and on a
// GPU.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/collectives/exec/reduce.h"
#include "runtime/collectives/plan/local_plan.h"
#include "tests/gpu/executor_world.h"
#include "tests/gpu/kernels_inputs.h"

namespace shunt::gpu::testing {
namespace {

using Bytes = std::vector<std::byte>;

// Of all ranks, out of place, by the plan.
std::vector<Bytes> Expected(const CollectiveSpec& spec, int world, const std::vector<Bytes>& in) {
  const uint64_t block = spec.count * SizeOf(spec.dtype);
  std::vector<Bytes> out;
  for (int rank = 0; rank < world; ++rank) {
    out.emplace_back(OutputBlocks(spec, world, rank) * block, std::byte{0xa5});
  }
  for (uint32_t i = 0; i < StepCount(spec, world); ++i) {
    const LocalStep step = StepAt(spec, world, i);
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> destinations;
    for (int k = 0; k < step.src_count; ++k) {
      sources.push_back(in[static_cast<size_t>(step.src_first + k)].data() +
                        step.src_block * block);
    }
    for (int k = 0; k < step.dst_count; ++k) {
      destinations.push_back(out[static_cast<size_t>(step.dst_first + k)].data() +
                             step.dst_block * block);
    }
    if (Reduces(spec.kind)) {
      ReduceInto({spec.dtype, spec.redop, world, StorePolicy::kTemporal}, sources, {}, destinations,
                 spec.count);
    } else {
      for (std::byte* const destination : destinations) {
        std::memcpy(destination, sources[0], block);
      }
    }
  }
  return out;
}

TEST_CASE("a collective's results are there once its gates are told, and then its completion") {
  ExecutorWorld world;
  Inputs inputs(1);
  auto command = std::make_unique<Command>();
  uint64_t value = 0;
  for (int kind = 1; kind < kOpKindCount; ++kind) {
    const auto op = static_cast<OpKind>(kind);
    if (op == OpKind::kAllToAllV) continue;
    const bool pair = op == OpKind::kSend || op == OpKind::kRecv;
    for (const int ranks : {2, 5, 8}) {
      if (pair && ranks != 2) continue;
      for (const uint64_t count : {1, 1000, 70001}) {
        const CollectiveSpec spec = {op, DataType::kBfloat16, Redop::kSum,
                                     HasRoot(op) ? ranks - 1 : 0, count};
        INFO(std::string(Name(op)) << " of " << ranks << " ranks, " << count << " elements");
        const uint64_t block = count * SizeOf(spec.dtype), stride = 8 * 70001 * 2 + 64;
        const DevicePtr memory = world.Allocate(2 * 8 * stride);
        command->id = ++value;
        command->kind = CommandKind::kCollective;
        command->lane = value % 3 == 0 ? 0 : value;
        command->op_kind = static_cast<uint8_t>(op);
        command->dtype = static_cast<uint8_t>(spec.dtype);
        command->redop = static_cast<uint8_t>(spec.redop);
        command->root = spec.root;
        command->count = count;
        command->places = command->gates = static_cast<uint32_t>(ranks);
        std::vector<Bytes> in;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto at = static_cast<size_t>(rank);
          const uint32_t blocks = InputBlocks(spec, ranks, rank);
          in.emplace_back(blocks * block);
          inputs.Fill(spec.dtype, true, in.back().data(), blocks * count);
          Place& place = command->place[at];
          place.in = blocks > 0 ? memory + at * stride : 0;
          place.out = OutputBlocks(spec, ranks, rank) > 0 ? memory + (8 + at) * stride : 0;
          if (blocks > 0) CopyToDevice(place.in, in.back().data(), in.back().size());
          command->gate[at] = world.GateAt(at, static_cast<uint32_t>(100 * value + at));
        }
        // Not every rank has one.
        if (ranks > 2) command->gate[1] = {};
        Ok(world.Begin(*command, value));
        world.Await(*command, value);
        for (int rank = 0; rank < ranks; ++rank) {
          const Gate& gate = command->gate[rank];
          if (gate.words != 0) CHECK(world.DoneOf(gate) == gate.generation);
        }
        const std::vector<Bytes> out = Expected(spec, ranks, in);
        for (size_t rank = 0; rank < out.size(); ++rank) {
          INFO("rank " << rank);
          // And nothing behind it.
          Bytes expected = out[rank];
          expected.insert(expected.end(), 16, std::byte{0xa5});
          REQUIRE(world.Read(memory + (8 + rank) * stride, expected.size()) == expected);
        }
        Ok(world.driver.Free(memory));
        world.memory.pop_back();
      }
    }
  }
}

TEST_CASE("a barrier tells its gates, and a command that repeats writes 1") {
  ExecutorWorld world;
  auto command = std::make_unique<Command>();
  command->id = 1;
  command->kind = CommandKind::kCollective;
  command->op_kind = static_cast<uint8_t>(OpKind::kBarrier);
  command->gates = 3;
  for (uint32_t i = 0; i < 3; ++i) command->gate[i] = world.GateAt(i, 70 + i);
  world.Execute(*command);
  for (uint32_t i = 0; i < 3; ++i) CHECK(world.DoneOf(command->gate[i]) == 70 + i);
  command->flags = kRepeats;
  for (uint64_t round = 2; round < 5; ++round) {
    world.Execute(*command, round);
    for (uint32_t i = 0; i < 3; ++i) {
      CHECK(world.DoneOf(command->gate[i]) == 1);
      reinterpret_cast<GateWords*>(command->gate[i].words)->done.store(0);
    }
  }
}

// `runs` of up to `longest` bytes that come from anywhere of `from` and fill `to` in order.
Bytes FillBatch(Inputs* inputs, Run* batch, uint32_t runs, uint64_t longest, DevicePtr from,
                const Bytes& held, DevicePtr to, uint64_t* bytes) {
  Bytes expected;
  for (uint32_t i = 0; i < runs; ++i) {
    const uint64_t piece = 1 + inputs->Below(longest);
    const uint64_t at = inputs->Below(held.size() - piece);
    batch[i] = {from + at, to + expected.size(), piece};
    expected.insert(expected.end(), held.begin() + static_cast<ptrdiff_t>(at),
                    held.begin() + static_cast<ptrdiff_t>(at + piece));
  }
  *bytes = expected.size();
  return expected;
}

TEST_CASE("a batch of runs is copied, few or many, on the GPU and between it and the host") {
  ExecutorWorld world;
  Inputs inputs(2);
  constexpr uint64_t kHeld = 1 << 20;
  Bytes held(kHeld);
  for (auto& byte : held) byte = static_cast<std::byte>(inputs.Number());
  const DevicePtr from = world.Allocate(kHeld);
  CopyToDevice(from, held.data(), kHeld);
  const DevicePtr to = world.Allocate(4 << 20);
  std::memcpy(world.host(), held.data(), kHeld);
  const uint64_t host_to = reinterpret_cast<uint64_t>(world.host()) + kHeld;
  auto command = std::make_unique<Command>();
  command->kind = CommandKind::kMove;
  command->gates = 1;
  for (const uint32_t runs : {1u, 63u, 64u, 65u, 1000u, 4096u}) {
    for (const int sides : {0, 1, 2}) {
      INFO(runs << " runs, sides " << sides);
      ++command->id;
      command->batch = static_cast<uint32_t>(command->id % kRunBatches);
      command->runs = runs;
      command->gate[0] = world.GateAt(0, static_cast<uint32_t>(command->id));
      const DevicePtr source = sides == 1 ? reinterpret_cast<uint64_t>(world.host()) : from;
      const DevicePtr destination = sides == 2 ? host_to : to;
      const uint64_t longest = runs > 1000 ? 700 : runs > 65 ? 2500 : 40000;
      const Bytes expected = FillBatch(&inputs, world.runs(command->batch), runs, longest, source,
                                       held, destination, &command->bytes);
      world.Execute(*command, command->id);
      CHECK(world.DoneOf(command->gate[0]) == command->id);
      REQUIRE(world.Read(destination, expected.size()) == expected);
    }
  }
}

TEST_CASE("all batches may be under way at once, and each again after its end") {
  ExecutorWorld world;
  Inputs inputs(3);
  constexpr uint64_t kHeld = 256 << 10, kEach = 512 << 10;
  Bytes held(kHeld);
  for (auto& byte : held) byte = static_cast<std::byte>(inputs.Number());
  const DevicePtr from = world.Allocate(kHeld);
  CopyToDevice(from, held.data(), kHeld);
  const DevicePtr to = world.Allocate(kRunBatches * kEach);
  std::vector<std::unique_ptr<Command>> commands;
  std::vector<Bytes> expected(kRunBatches);
  for (uint32_t i = 0; i < kRunBatches; ++i) commands.push_back(std::make_unique<Command>());
  const auto begin = [&](uint32_t i) {
    Command& command = *commands[i];
    command.id = i;
    command.kind = CommandKind::kMove;
    command.batch = i;
    command.runs = 200;
    expected[i] = FillBatch(&inputs, world.runs(i), command.runs, 2500, from, held, to + i * kEach,
                            &command.bytes);
    Ok(world.Begin(command, ++command.count));
  };
  for (uint32_t i = 0; i < kRunBatches; ++i) begin(i);
  for (int round = 0; round < 50; ++round) {
    const uint32_t i = static_cast<uint32_t>(round) % kRunBatches;
    world.Await(*commands[i], commands[i]->count);
    REQUIRE(world.Read(to + i * kEach, expected[i].size()) == expected[i]);
    begin(i);
  }
  for (const auto& command : commands) world.Await(*command, command->count);
}

TEST_CASE("one long piece goes by copy engine, and says so at its end") {
  ExecutorWorld world;
  Inputs inputs(4);
  constexpr uint64_t kBytes = 3 << 20;
  Bytes held(kBytes);
  for (auto& byte : held) byte = static_cast<std::byte>(inputs.Number());
  const DevicePtr from = world.Allocate(kBytes), to = world.Allocate(kBytes);
  CopyToDevice(from, held.data(), kBytes);
  auto command = std::make_unique<Command>();
  command->id = 9;
  command->kind = CommandKind::kCopy;
  command->bytes = kBytes - 5;
  command->gates = 1;
  command->gate[0] = world.GateAt(3, 5);
  command->places = 1;
  command->place[0].in = from;
  command->place[0].out = to;
  world.Execute(*command, 77);
  CHECK(world.DoneOf(command->gate[0]) == 5);
  Bytes expected(held.begin(), held.end() - 5);
  expected.insert(expected.end(), 5, std::byte{0xa5});
  CHECK(world.Read(to, kBytes) == expected);
  command->places = 2;
  CHECK(std::string(world.Begin(*command, 78).message()) ==
        "command 9, a copy, has 2 places, expected 1");
  CHECK(world.executor->Health().ok());
}

}  // namespace
}  // namespace shunt::gpu::testing
