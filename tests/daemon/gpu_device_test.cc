// shuntd's part and the worker on a GPU: memory crosses, streams and commands meet, a worker's
// death costs what it should.
#include <signal.h>

#include <cstdio>

#include "absl/cleanup/cleanup.h"
#include "runtime/core/clock.h"
#include "tests/daemon/gpu_world.h"

namespace shunt::daemon {
namespace {

using gpu::DevicePtr;
using gpu::MemoryOp;

bool Has(const absl::Status& status, const std::string& words) {
  return status.message().find(words) != absl::string_view::npos;
}

GpuWorkers::Options RealWorker() {
  GpuWorkers::Options options = GpuWorld::Defaults();
  options.choice.worker = std::getenv("SHUNT_GPU_WORKER");
  options.look = 100ms;
  return options;
}

// A region of the session's host memory, in which a stream of this process and the worker meet.
struct StreamGate {
  explicit StreamGate(GpuWorld& world)
      : driver(world.client.driver),
        region(Value(world.table.Allocate({.session = 1, .tenant = 0}, 4096))),
        memory(Value(region->At(0, 4096))),
        address(Value(driver.RegisterHost(memory, 4096))),
        stream(Value(driver.CreateStream())) {
    words = reinterpret_cast<gpu::GateWords*>(memory);
  }
  ~StreamGate() {
    driver.DestroyStream(stream);
    driver.UnregisterHost(memory).IgnoreError();
  }
  gpu::Gate In(GpuWorker& worker, uint32_t generation) const {
    const HostAddress in = Value(worker.AddressOf(region));
    return {in.cpu, in.device, generation, 0};
  }
  // The stream triggers, and goes on when the operation has ended.
  void Enqueue(uint32_t generation) {
    const MemoryOp ops[] = {{MemoryOp::Kind::kWrite, address, generation},
                            {MemoryOp::Kind::kWaitAtLeast, address + 4, generation}};
    REQUIRE(driver.Enqueue(stream, ops).ok());
  }
  gpu::Driver& driver;
  const std::shared_ptr<memory::Region> region;
  std::byte* const memory;
  const DevicePtr address;
  const gpu::Stream stream;
  gpu::GateWords* words = nullptr;
};

std::function<void(gpu::Command&)> Gated(std::function<void(gpu::Command&)> fill, gpu::Gate gate) {
  return [fill = std::move(fill), gate](gpu::Command& command) {
    fill(command);
    command.gates = 1;
    command.gate[0] = gate;
  };
}

std::vector<uint8_t> Read(gpu::Driver& driver, DevicePtr from, uint64_t bytes) {
  std::vector<uint8_t> out(bytes);
  REQUIRE(driver.CopyAsync(reinterpret_cast<DevicePtr>(out.data()), from, bytes, nullptr).ok());
  REQUIRE(driver.Synchronize(nullptr).ok());
  return out;
}

TEST_CASE("memory by descriptor and by IPC handle crosses, and a copy takes its stream's turn") {
  GpuWorld world(RealWorker());
  gpu::Driver& driver = world.client.driver;
  const auto session = world.NewSession();
  auto from = Value(driver.AllocateExportable(0, kUnit));
  const DevicePtr to = Value(driver.Allocate(kUnit));
  const auto free_to = absl::MakeCleanup([&] {
    driver.Free(to).IgnoreError();
    driver.FreeVmm(from.address, from.bytes).IgnoreError();
  });
  const auto source = world.Region(session, from);
  const auto target = Value(world.regions.Find(
      session->id,
      Value(world.Register(session, world.ByIpc(kUnit, Value(driver.ExportIpc(to)))))));
  const auto worker = world.worker();
  StreamGate gate(world);
  REQUIRE(driver.FillAsync(to, 1, kUnit, gate.stream).ok());
  REQUIRE(driver.Synchronize(gate.stream).ok());
  auto running = world.Submit(worker->incarnation(),
                              Gated(GpuWorld::Copy(Value(worker->AddressOf(source)),
                                                   Value(worker->AddressOf(target)), kUnit),
                                    gate.In(*worker, 1)));
  REQUIRE(running.id.ok());
  // What the stream does before it comes there is seen; what it does after sees the copy.
  REQUIRE(driver.FillAsync(from.address, 0x5a, kUnit, gate.stream).ok());
  gate.Enqueue(1);
  const DevicePtr after = Value(driver.Allocate(kUnit));
  REQUIRE(driver.CopyAsync(after, to, kUnit, gate.stream).ok());
  REQUIRE(driver.Synchronize(gate.stream).ok());
  CHECK(running.Wait().ok());
  CHECK(Read(driver, after, kUnit) == std::vector<uint8_t>(kUnit, 0x5a));
  REQUIRE(driver.Free(after).ok());
}

TEST_CASE("sizes that are not the allocation's are refused") {
  GpuWorld world(RealWorker());
  gpu::Driver& driver = world.client.driver;
  const auto session = world.NewSession();
  auto memory = Value(driver.AllocateExportable(0, 2 * kUnit));
  const DevicePtr other = Value(driver.Allocate(kUnit));
  const gpu::IpcHandle handle = Value(driver.ExportIpc(other));
  const auto refused = [&](DeviceRegions::Request request) {
    const absl::Status status = world.Register(session, std::move(request)).status();
    INFO(status);
    CHECK(absl::IsFailedPrecondition(status));
    std::printf("refused: %s\n", std::string(status.message()).c_str());
  };
  refused(world.ByFd(4 * kUnit, memory.fd.get()));
  refused(world.ByIpc(64 * kUnit, handle));
  refused(world.ByIpc(kUnit, gpu::IpcHandle{}));
  const UniqueFd plain = Value(MakeSealedMemfd("plain", kUnit));
  refused(world.ByFd(kUnit, plain.get()));
  CHECK(world.Register(session, world.ByFd(2 * kUnit, memory.fd.get())).ok());
  CHECK(world.worker()->View().restarts == 0);
  REQUIRE(driver.Free(other).ok());
  REQUIRE(driver.FreeVmm(memory.address, memory.bytes).ok());
}

TEST_CASE("memory that its session has let go of returns to the GPU") {
  GpuWorld world(RealWorker());
  gpu::Driver& driver = world.client.driver;
  const auto session = world.NewSession();
  constexpr uint64_t kBytes = uint64_t{8} << 30;
  auto memory = Value(driver.AllocateExportable(0, kBytes));
  world.Region(session, memory);
  // As a client that was killed: the worker alone holds it, and shuntd its descriptor.
  REQUIRE(driver.FreeVmm(memory.address, memory.bytes).ok());
  memory.fd.Reset();
  const uint64_t held = Value(driver.Memory()).free_bytes;
  const int64_t begin = NowNs();
  session->ended.store(true);
  world.regions.SessionGone(session->id);
  CHECK(Eventually([&] { return Value(driver.Memory()).free_bytes >= held + kBytes; }));
  std::printf("8 GiB returned in %.1f ms\n", static_cast<double>(NowNs() - begin) / 1e6);
}

TEST_CASE("a killed worker is replaced on the GPU, and streams are not held up") {
  GpuWorld world(RealWorker());
  gpu::Driver& driver = world.client.driver;
  const auto session = world.NewSession();
  auto memory = Value(driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();
  StreamGate gate(world);
  auto waits =
      world.Submit(worker->incarnation(), Gated(GpuWorld::Copy(0, 0, 0), gate.In(*worker, 5)));
  const MemoryOp wait{MemoryOp::Kind::kWaitAtLeast, gate.address + 4, 5};
  REQUIRE(driver.Enqueue(gate.stream, absl::MakeConstSpan(&wait, 1)).ok());
  const int64_t begin = NowNs();
  REQUIRE(::kill(worker->View().pid, SIGKILL) == 0);
  const absl::Status end = waits.Wait();
  const int64_t told = NowNs();
  CHECK(absl::IsUnavailable(end));
  CHECK(Has(end, "was killed by signal 9"));
  REQUIRE(driver.Synchronize(gate.stream).ok());
  const uint64_t address = Value(worker->AddressOf(region));
  std::printf("killed worker: told after %.1f ms, its memory imported again after %.1f ms\n",
              static_cast<double>(told - begin) / 1e6, static_cast<double>(NowNs() - begin) / 1e6);
  REQUIRE(driver.FillAsync(memory.address, 7, 4096, nullptr).ok());
  REQUIRE(driver.Synchronize(nullptr).ok());
  CHECK(world.Submit(worker->incarnation(), GpuWorld::Copy(address, address + 8192, 4096))
            .Wait()
            .ok());
  CHECK(Read(driver, memory.address + 8192, 4096) == std::vector<uint8_t>(4096, 7));
  REQUIRE(driver.FreeVmm(memory.address, memory.bytes).ok());
}

TEST_CASE("an address that faults costs the worker's context, and this process nothing") {
  GpuWorld world(RealWorker());
  gpu::Driver& driver = world.client.driver;
  const auto session = world.NewSession();
  auto memory = Value(driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();
  StreamGate gate(world);
  const uint64_t incarnation = worker->incarnation();
  auto waits = world.Submit(incarnation, Gated(GpuWorld::Copy(0, 0, 0), gate.In(*worker, 3)));
  RunBatch batch = worker->TakeBatch(nullptr);
  REQUIRE(batch);
  batch.runs()[0] = {Value(worker->AddressOf(region)), uint64_t{1} << 46, 4096};
  const int64_t begin = NowNs();
  auto faults = world.Submit(incarnation, [&batch](gpu::Command& command) {
    command.kind = gpu::CommandKind::kMove;
    command.batch = batch.index();
    command.runs = 1;
    command.bytes = 4096;
  });
  for (auto* running : {&faults, &waits}) {
    const absl::Status end = running->Wait();
    std::printf("after %.1f ms: %s\n", static_cast<double>(NowNs() - begin) / 1e6,
                std::string(end.message()).c_str());
    CHECK(absl::IsUnavailable(end));
    CHECK(Has(end, "CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  CHECK(gate.words->done == 3);
  CHECK(worker->AddressOf(region).ok());
  CHECK(worker->incarnation() == incarnation + 1);
  CHECK(world.Submit(worker->incarnation(), GpuWorld::Copy(0, 0, 0)).Wait().ok());
  // The context here is whole.
  CHECK(Read(driver, memory.address, 4096).size() == 4096);
  REQUIRE(driver.FreeVmm(memory.address, memory.bytes).ok());
}

// Says what it takes; the stream's own part is the same without a worker.
TEST_CASE("a stream's round through the worker") {
  GpuWorld world(RealWorker());
  gpu::Driver& driver = world.client.driver;
  const auto session = world.NewSession();
  auto memory = Value(driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();
  const uint64_t address = Value(worker->AddressOf(region));
  StreamGate gate(world);
  std::vector<double> rounds, alone;
  for (uint32_t round = 1; round <= 2000; ++round) {
    auto running = world.Submit(worker->incarnation(), Gated(
                                                           [&](gpu::Command& command) {
                                                             command.kind = gpu::CommandKind::kMove;
                                                             command.runs = 0;
                                                             command.bytes = 0;
                                                             command.lane = 1;
                                                           },
                                                           gate.In(*worker, round)));
    REQUIRE(running.id.ok());
    const int64_t begin = NowNs();
    gate.Enqueue(round);
    while (gate.words->done.load() != round) {
    }
    rounds.push_back(static_cast<double>(NowNs() - begin) / 1e3);
    REQUIRE(driver.Synchronize(gate.stream).ok());
    REQUIRE(running.Wait().ok());
    // Bare: the stream writes the trigger, and the CPU sees it.
    const MemoryOp write{MemoryOp::Kind::kWrite, gate.address + 64, round};
    const auto* const word = reinterpret_cast<const std::atomic<uint32_t>*>(gate.memory + 64);
    const int64_t bare = NowNs();
    REQUIRE(driver.Enqueue(gate.stream, absl::MakeConstSpan(&write, 1)).ok());
    while (word->load() != round) {
    }
    alone.push_back(static_cast<double>(NowNs() - bare) / 1e3);
  }
  for (auto* all : {&rounds, &alone}) std::sort(all->begin(), all->end());
  std::printf("enqueue to done through the worker: median %.1f us, 99%% %.1f us\n",
              rounds[rounds.size() / 2], rounds[rounds.size() * 99 / 100]);
  std::printf("enqueue to trigger seen: median %.1f us, 99%% %.1f us\n", alone[alone.size() / 2],
              alone[alone.size() * 99 / 100]);
  CHECK(address != 0);
  REQUIRE(driver.FreeVmm(memory.address, memory.bytes).ok());
}

}  // namespace
}  // namespace shunt::daemon
