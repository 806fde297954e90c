// How an executor launches, and what it does when the driver fails: on the fake alone.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/executor_world.h"

namespace shunt::gpu::testing {
namespace {

void Fail(const char* function, uint64_t nth, int code) {
  using Function = void (*)(const char*, uint64_t, int);
  reinterpret_cast<Function>(LibraryFunction("shunt_fake_cuda_fail"))(function, nth, code);
}

uint64_t Launches() {
  using Function = uint64_t (*)(const char*);
  return reinterpret_cast<Function>(LibraryFunction("shunt_fake_cuda_calls"))("cuLaunchKernel");
}

std::unique_ptr<Command> Move(ExecutorWorld* world, uint32_t runs) {
  const DevicePtr memory = world->Allocate(runs * 32);
  auto command = std::make_unique<Command>();
  command->id = 1;
  command->kind = CommandKind::kMove;
  command->runs = runs;
  command->bytes = runs * uint64_t{16};
  for (uint32_t i = 0; i < runs; ++i) {
    world->runs(0)[i] = {memory + uint64_t{i} * 32, memory + uint64_t{i} * 32 + 16, 16};
  }
  command->gates = 1;
  command->gate[0] = world->GateAt(0, 3);
  return command;
}

TEST_CASE("a command that the driver refuses tells nobody, and the next one works") {
  ExecutorWorld world;
  for (const uint32_t runs : {10u, 100u}) {
    const auto command = Move(&world, runs);
    Fail("cuLaunchKernel", 1, 1);
    const absl::Status refused = world.Begin(*command, runs);
    CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(refused.message()).find("CUDA_ERROR_INVALID_VALUE") != std::string::npos);
    CHECK(*world.completion != runs);
    CHECK(world.DoneOf(command->gate[0]) == 0);
    CHECK(world.executor->Health().ok());
    world.Execute(*command, runs);
    CHECK(world.DoneOf(command->gate[0]) == 3);
    reinterpret_cast<GateWords*>(command->gate[0].words)->done.store(0);
  }
}

TEST_CASE("a small grid tells by itself, and a large one by a launch of its own") {
  ExecutorWorld world;
  for (const uint32_t runs : {10u, 3000u}) {
    const auto command = Move(&world, runs);
    const uint64_t before = Launches();
    world.Execute(*command, runs);
    CHECK(Launches() - before == (runs == 10 ? 1 : 2));
    CHECK(world.DoneOf(command->gate[0]) == 3);
    reinterpret_cast<GateWords*>(command->gate[0].words)->done.store(0);
  }
}

TEST_CASE("a large grid whose own launch to tell is refused has ended by then, and tells nobody") {
  ExecutorWorld world;
  constexpr uint32_t kRuns = 3000;
  const auto command = Move(&world, kRuns);
  const DevicePtr memory = world.memory.back();
  std::vector<std::byte> expected(kRuns * 32, std::byte{0xa5});
  for (size_t i = 0; i < kRuns; ++i) {
    for (size_t k = 0; k < 16; ++k) {
      expected[32 * i + k] = expected[32 * i + 16 + k] = static_cast<std::byte>(i + k);
    }
  }
  for (size_t i = 0; i < kRuns; ++i) CopyToDevice(memory + 32 * i, &expected[32 * i], 16);
  Fail("cuLaunchKernel", 2, 1);
  const absl::Status refused = world.Begin(*command);
  CHECK(std::string(refused.message()).find("CUDA_ERROR_INVALID_VALUE") != std::string::npos);
  CHECK(world.Read(memory, expected.size()) == expected);
  CHECK(*world.completion == 0);
  CHECK(world.DoneOf(command->gate[0]) == 0);
  world.Execute(*command);
  CHECK(world.DoneOf(command->gate[0]) == 3);
}

TEST_CASE("an executor that cannot be made says why") {
  World world;
  const DeviceFacts facts = Value(world.driver.Describe(0));
  Fail("cuModuleLoadData", 1, 200);
  CHECK_FALSE(MakeKernelExecutor(&world.driver, facts).ok());
  Fail("cuMemAlloc", 2, 2);
  CHECK(absl::IsResourceExhausted(MakeKernelExecutor(&world.driver, facts).status()));
  DeviceFacts old = facts;
  old.compute_major = 7;
  old.compute_minor = 5;
  CHECK(absl::IsFailedPrecondition(MakeKernelExecutor(&world.driver, old).status()));
}

// The last one: no later case has a context.
TEST_CASE("a context that is lost is told by the next look and the next command") {
  ExecutorWorld world;
  const auto command = Move(&world, 3);
  CHECK(world.executor->Health().ok());
  world.Execute(*command);
  // An address that nobody has: the kernel loses the context.
  world.runs(0)[1].source = 4096;
  Ok(world.Begin(*command, 2));
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (world.executor->Health().ok()) REQUIRE(std::chrono::steady_clock::now() < late);
  CHECK(absl::IsDataLoss(world.executor->Health()));
  CHECK(absl::IsDataLoss(world.Begin(*command, 3)));
  CHECK(*world.completion == 1);
  CHECK(world.DoneOf(command->gate[0]) == 3);  // of the first
}

}  // namespace
}  // namespace shunt::gpu::testing
