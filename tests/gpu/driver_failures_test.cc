// What only the fake can be made to do: failures, other drivers, several GPUs, kernels on the CPU.
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/fd.h"
#include "runtime/core/types.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/kernels/params.h"
#include "runtime/gpu/worker/protocol.h"
#include "tests/gpu/cuda_program.h"
#include "tests/gpu/driver_child.h"
#include "tests/gpu/driver_world.h"
#include "tests/support/temp_dir.h"

namespace shunt::gpu::testing {
namespace {

using absl::StatusCode;
using Catch::Matchers::Contains;
using Op = MemoryOp::Kind;

void Fail(const char* function, uint64_t nth, int code) {
  using Function = void (*)(const char*, uint64_t, int);
  reinterpret_cast<Function>(LibraryFunction("shunt_fake_cuda_fail"))(function, nth, code);
}

// As of a child of this process that loads the driver in another environment.
std::string LoadWith(std::vector<std::pair<std::string, std::string>> environment) {
  return Child({"load"}, -1, std::move(environment)).Line();
}

TEST_CASE("a failure of the driver's becomes the promised code, with its name") {
  World world;
  struct Case {
    int cuda;
    StatusCode code;
    const char* name;
  };
  for (const Case& c : {Case{1, StatusCode::kInvalidArgument, "CUDA_ERROR_INVALID_VALUE"},
                        Case{2, StatusCode::kResourceExhausted, "CUDA_ERROR_OUT_OF_MEMORY"},
                        Case{201, StatusCode::kFailedPrecondition, "CUDA_ERROR_INVALID_CONTEXT"},
                        Case{214, StatusCode::kDataLoss, "CUDA_ERROR_ECC_UNCORRECTABLE"},
                        Case{400, StatusCode::kInvalidArgument, "CUDA_ERROR_INVALID_HANDLE"},
                        Case{500, StatusCode::kNotFound, "CUDA_ERROR_NOT_FOUND"},
                        Case{600, StatusCode::kUnavailable, "CUDA_ERROR_NOT_READY"},
                        Case{700, StatusCode::kDataLoss, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                        Case{719, StatusCode::kDataLoss, "CUDA_ERROR_LAUNCH_FAILED"},
                        Case{800, StatusCode::kFailedPrecondition, "CUDA_ERROR_NOT_PERMITTED"},
                        Case{801, StatusCode::kFailedPrecondition, "CUDA_ERROR_NOT_SUPPORTED"},
                        Case{806, StatusCode::kDataLoss, "error 806 of CUDA"},
                        Case{999, StatusCode::kInternal, "error 999 of CUDA"}}) {
    Fail("cuMemAlloc", 1, c.cuda);
    const absl::Status status = world.driver.Allocate(4096).status();
    CHECK(status.code() == c.code);
    CHECK_THAT(std::string(status.message()), Contains("cuMemAlloc: ") && Contains(c.name));
  }
  Fail("cuMemAlloc", 2, 2);
  const DevicePtr first = Value(world.driver.Allocate(4096));
  CHECK(world.driver.Allocate(4096).status().code() == StatusCode::kResourceExhausted);
  const DevicePtr third = Value(world.driver.Allocate(4096));
  Ok(world.driver.Free(first));
  Ok(world.driver.Free(third));
}

TEST_CASE("what fails half way leaves nothing behind") {
  World world;
  Driver& driver = world.driver;
  const uint64_t before = Value(driver.Memory()).free_bytes;
  for (const char* const call : {"cuMemCreate", "cuMemExportToShareableHandle",
                                 "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    Fail(call, 1, 2);
    const absl::Status status = driver.AllocateExportable(0, 1).status();
    CHECK(status.code() == StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(status.message()), Contains(call));
    CHECK(Value(driver.Memory()).free_bytes == before);
  }
  std::vector<std::byte> memory(8192);
  Fail("cuMemHostGetDevicePointer", 1, 801);
  CHECK(!driver.RegisterHost(memory.data(), memory.size()).ok());
  (void)Value(driver.RegisterHost(memory.data(), memory.size()));
  Ok(driver.UnregisterHost(memory.data()));
}

TEST_CASE("a graph that does not take the keepsake does not destroy it") {
  World world;
  int destroyed = 0;
  BeginCapture(world.stream);
  const Graph graph = Value(world.driver.Capturing(world.stream)).graph;
  Fail("cuGraphRetainUserObject", 1, 1);
  CHECK(!world.driver
             .OnGraphDestroyed(
                 graph, [](void* p) { ++*static_cast<int*>(p); }, &destroyed)
             .ok());
  DestroyGraph(EndCapture(world.stream));
  CHECK(destroyed == 0);
}

TEST_CASE("no driver, an old one, and no GPU are told apart in words") {
  const std::string none = LoadWith({{"SHUNT_CUDA_LIBRARY", "/nonexistent/libcuda.so.1"}});
  CHECK_THAT(none, Contains("UNAVAILABLE: no CUDA driver: cannot load /nonexistent/libcuda.so.1"));
  const std::string other = LoadWith({{"SHUNT_CUDA_LIBRARY", "libc.so.6"}});
  CHECK_THAT(other, Contains("UNAVAILABLE: the CUDA driver libc.so.6 has no cuInit") &&
                        Contains("expected CUDA 12.0 or younger"));
  CHECK_THAT(LoadWith({{"SHUNT_FAKE_CUDA_VERSION", "11040"}}),
             Contains("UNAVAILABLE") && Contains("is of CUDA 11.4: expected 12.0 or younger"));
  CHECK_THAT(LoadWith({{"SHUNT_FAKE_CUDA_DEVICES", "0"}}), Contains("UNAVAILABLE") &&
                                                               Contains("of CUDA 13.0") &&
                                                               Contains("CUDA_ERROR_NO_DEVICE"));
  CHECK(LoadWith({{"SHUNT_FAKE_CUDA_VERSION", "12000"}}) == "OK");
}

TEST_CASE("a process sees the GPUs that it is let see") {
  CHECK(Child({"pci"}, -1, {{"SHUNT_FAKE_CUDA_DEVICES", "4"}}).Line() == "0000:a0:00.0");
  CHECK(Child({"pci"}, -1, {{"SHUNT_FAKE_CUDA_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", "2,1"}})
            .Line() == "0000:a2:00.0");
}

TEST_CASE("a lost context answers everything with DATA_LOSS and ends waits") {
  Child lost({"lose"}, -1);
  for (std::string line = lost.Line(); !line.empty(); line = lost.Line()) {
    CHECK_THAT(line, Contains("DATA_LOSS") && Contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  CHECK(lost.Wait() == 0);
}

TEST_CASE("a control file makes the calls of another process fail") {
  const shunt::testing::TempDir directory;
  const std::string path = directory / "control";
  const auto write = [&](const char* lines) {
    std::ofstream(path + ".new") << lines;
    std::filesystem::rename(path + ".new", path);
  };
  write("fail cuDevicePrimaryCtxRetain 1 2\n");
  Child failing({"export", "4096", "1"}, -1, {{"SHUNT_FAKE_CUDA_CONTROL", path}});
  CHECK_THAT(failing.Line(),
             Contains("RESOURCE_EXHAUSTED: cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY"));

  // Lost while it waits; one that starts later is not.
  write("");
  Child waiting({"wait"}, -1, {{"SHUNT_FAKE_CUDA_CONTROL", path}});
  CHECK(waiting.Line() == "waits");
  write("lose 719\n");
  CHECK_THAT(waiting.Line(), Contains("DATA_LOSS") && Contains("CUDA_ERROR_LAUNCH_FAILED"));
  Child later({"export", "4096", "1"}, -1, {{"SHUNT_FAKE_CUDA_CONTROL", path}});
  CHECK(FromHex(later.Line()).size() == sizeof(IpcHandle));
}

TEST_CASE("kernels compute what their structs say") {
  World world;
  Driver& driver = world.driver;
  const Module module = Value(driver.LoadModule("any image"));
  CHECK(driver.FindFunction(module, "shunt_other").status().code() == StatusCode::kNotFound);
  const Function reduce = Value(driver.FindFunction(module, "shunt_reduce_float32_large"));
  const Function move = Value(driver.FindFunction(module, "shunt_move_large"));
  const Function signal = Value(driver.FindFunction(module, "shunt_signal_large"));
  Words words(driver);
  const DevicePtr memory = Value(driver.Allocate(4096));
  const LaunchShape shape{.blocks_x = 1, .blocks_y = 1, .threads = 128, .shared_bytes = 0};

  const float a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
  CopyToDevice(memory, a, sizeof(a));
  CopyToDevice(memory + 64, b, sizeof(b));
  auto sum = std::make_unique<ReduceParams>();
  sum->dtype = static_cast<uint8_t>(DataType::kFloat32);
  sum->redop = static_cast<uint8_t>(Redop::kSum);
  sum->sources = 2;
  sum->destinations = 2;
  sum->count = 3;
  sum->source[0] = memory;
  sum->source[1] = memory + 64;
  sum->destination[0] = memory;
  sum->destination[1] = memory + 128;
  sum->signals.count = 2;
  sum->signals.value = 40;
  for (uint32_t i = 0; i < 2; ++i) {
    sum->signals.word[i] = reinterpret_cast<uint32_t*>(words.AddressOf(i));
    sum->signals.values[i] = i + 1;
  }
  sum->signals.completion = reinterpret_cast<uint64_t*>(words.AddressOf(4));
  sum->signals.completion_value = uint64_t{9} << 32 | 8;
  Ok(driver.Launch(reduce, shape, sum.get(), sizeof(*sum), world.stream));
  sum.reset();  // copied at the launch
  Ok(driver.Synchronize(world.stream));
  float out[3] = {};
  for (const DevicePtr from : {memory, memory + 128}) {
    CopyFromDevice(out, from, sizeof(out));
    CHECK(std::vector<float>(out, out + 3) == std::vector<float>{11, 22, 33});
  }
  CHECK(words.At(0).load() == 41);
  CHECK(words.At(1).load() == 42);
  CHECK(words.At(4).load() == 8);
  CHECK(words.At(5).load() == 9);

  Run* const runs = reinterpret_cast<Run*>(words.mapping.data() + 1024);
  runs[0] = {memory, memory + 256, 8};
  runs[1] = {memory + 64, memory + 264, 4};
  MoveParams moves{};
  moves.run = reinterpret_cast<const RunWords*>(words.address + 1024);
  moves.runs = 2;
  moves.bytes = 12;
  Ok(driver.Launch(move, shape, &moves, sizeof(moves), world.stream));
  Signals last{};
  last.count = 1;
  last.value = 3;
  last.word[0] = reinterpret_cast<uint32_t*>(words.AddressOf(7));
  Ok(driver.Launch(signal, shape, &last, sizeof(last), world.stream));
  Ok(driver.Synchronize(world.stream));
  CopyFromDevice(out, memory + 256, sizeof(out));
  CHECK(std::vector<float>(out, out + 3) == std::vector<float>{11, 22, 10});
  CHECK(words.At(7).load() == 3);

  LaunchShape none = shape;
  none.blocks_x = 0;
  CHECK(driver.Launch(signal, none, &last, sizeof(last), world.stream).code() ==
        StatusCode::kInvalidArgument);
  Ok(driver.Free(memory));
  driver.UnloadModule(module);
}

}  // namespace
}  // namespace shunt::gpu::testing
