// Who supervises the workers: their death, their silence, their choice.
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <set>

#include "daemon/gpu/worker_process.h"
#include "runtime/gpu/worker/listing.h"
#include "tests/daemon/gpu_world.h"

namespace shunt::daemon {
namespace {

bool Has(const absl::Status& status, const std::string& words) {
  return status.message().find(words) != absl::string_view::npos;
}

// Sets a variable of this process's, which workers are started with.
struct Variable {
  Variable(const char* name, const std::string& value) : name(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name); }
  const char* const name;
};

std::string TempFile(const std::string& name, const std::string& text) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("shunt-gpu-test-" + std::to_string(::getpid()) + "-" + name);
  std::ofstream(path + ".new") << text;
  std::filesystem::rename(path + ".new", path);
  return path;
}

// A gate in memory of a session's.
struct HostGate {
  explicit HostGate(GpuWorld& world)
      : region(Value(world.table.Allocate({.session = 1, .tenant = 0}, 4096))),
        words(reinterpret_cast<gpu::GateWords*>(Value(region->At(64, sizeof(gpu::GateWords))))) {}
  // As the worker knows it now.
  gpu::Gate In(GpuWorker& worker, uint32_t generation) const {
    const HostAddress address = Value(worker.AddressOf(region));
    return {address.cpu + 64, address.device + 64, generation, 0};
  }
  std::shared_ptr<memory::Region> region;
  gpu::GateWords* words;
};

std::function<void(gpu::Command&)> Gated(std::function<void(gpu::Command&)> fill, gpu::Gate gate) {
  return [fill = std::move(fill), gate](gpu::Command& command) {
    fill(command);
    command.gates = 1;
    command.gate[0] = gate;
  };
}

TEST_CASE("a copy between regions is done when its gate's stream comes there") {
  GpuWorld world;
  const auto session = world.NewSession();
  auto from = Value(world.client.driver.AllocateExportable(0, kUnit));
  auto to = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto source = world.Region(session, from), target = world.Region(session, to);
  std::memset(reinterpret_cast<void*>(from.address), 0x5a, kUnit);
  const auto worker = world.worker();
  const HostGate gate(world);
  const uint64_t incarnation = worker->incarnation();
  auto running =
      world.Submit(incarnation, Gated(GpuWorld::Copy(Value(worker->AddressOf(source)),
                                                     Value(worker->AddressOf(target)), kUnit),
                                      gate.In(*worker, 3)));
  REQUIRE(running.id.ok());
  auto other = world.Submit(incarnation, GpuWorld::Copy(0, 0, 0));
  CHECK(other.Wait().ok());  // after it in the ring, and ended before it
  CHECK(gate.words->done == 0);
  gate.words->trigger.store(3);
  CHECK(running.Wait().ok());
  CHECK(gate.words->done == 3);
  CHECK(std::memcmp(reinterpret_cast<void*>(from.address), reinterpret_cast<void*>(to.address),
                    kUnit) == 0);
}

TEST_CASE("runs of a batch are copied, and a batch that is given back is somebody's next") {
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();
  auto* const bytes = reinterpret_cast<char*>(memory.address);
  for (int i = 0; i < 4096; ++i) bytes[i] = static_cast<char>(i);
  const uint64_t base = Value(worker->AddressOf(region));
  {
    RunBatch batch = worker->TakeBatch(nullptr);
    REQUIRE(batch);
    CHECK(batch.incarnation() == worker->incarnation());
    for (uint64_t i = 0; i < 8; ++i)
      batch.runs()[i] = {base + i * 512, base + 65536 + (7 - i) * 512, 512};
    auto running = world.Submit(worker->incarnation(), [&batch](gpu::Command& command) {
      command.kind = gpu::CommandKind::kMove;
      command.batch = batch.index();
      command.runs = 8;
    });
    REQUIRE(running.Wait().ok());
  }
  for (int i = 0; i < 8; ++i)
    CHECK(std::memcmp(bytes + i * 512, bytes + 65536 + (7 - i) * 512, 512) == 0);

  std::vector<RunBatch> all;
  for (uint32_t i = 0; i < gpu::kRunBatches; ++i) {
    all.push_back(worker->TakeBatch(nullptr));
    REQUIRE(all.back());
  }
  std::set<uint32_t> indices;
  for (const RunBatch& batch : all) indices.insert(batch.index());
  CHECK(indices.size() == gpu::kRunBatches);
  int freed = 0;
  CHECK_FALSE(worker->TakeBatch([&freed] { ++freed; }));
  CHECK(freed == 0);
  const uint32_t index = all.back().index();
  all.pop_back();
  CHECK(freed == 1);
  CHECK(worker->TakeBatch(nullptr).index() == index);
}

TEST_CASE(
    "a killed worker is replaced, its memory imported anew, what was under way ends in words") {
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();
  const HostGate gate(world), unused(world);
  const uint64_t incarnation = worker->incarnation();
  auto waits = world.Submit(incarnation, Gated(GpuWorld::Special(0), gate.In(*worker, 9)));
  auto runs = world.Submit(incarnation, GpuWorld::Special(gpu::kNever));
  unused.In(*worker, 1);
  REQUIRE(waits.id.ok());
  REQUIRE(runs.id.ok());
  const int32_t pid = worker->View().pid;
  REQUIRE(::kill(pid, SIGKILL) == 0);
  for (auto* running : {&waits, &runs}) {
    const absl::Status end = running->Wait();
    INFO(end);
    CHECK(absl::IsUnavailable(end));
    CHECK(Has(end, worker->label()));
    CHECK(Has(end, "was killed by signal 9"));
  }
  CHECK(gate.words->done == 9);  // the client's stream is not held up

  const uint64_t address = Value(worker->AddressOf(region));
  CHECK(worker->incarnation() == incarnation + 1);
  const GpuView view = worker->View();
  CHECK(view.state == "ready");
  CHECK(view.pid != pid);
  CHECK(view.restarts == 1);
  CHECK(view.regions == 1);
  CHECK(view.region_bytes == kUnit);
  CHECK(world.Mappings() == 1);
  // Addresses of the one before are not taken for the new one's.
  auto stale = world.Submit(incarnation, GpuWorld::Copy(address, address + 4096, 4096));
  CHECK(absl::IsUnavailable(stale.id.status()));
  CHECK(Has(stale.id.status(), "was replaced"));
  *reinterpret_cast<char*>(memory.address) = 'x';
  auto again = world.Submit(worker->incarnation(), GpuWorld::Copy(address, address + 4096, 4096));
  CHECK(again.Wait().ok());
  CHECK(reinterpret_cast<char*>(memory.address)[4096] == 'x');
}

TEST_CASE("a worker whose loop stands still is replaced") {
  GpuWorkers::Options options = GpuWorld::Defaults();
  options.silent_looks = 5;
  GpuWorld world(options);
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();

  SECTION("in a launch") {
    auto hangs = world.Submit(worker->incarnation(), GpuWorld::Special(gpu::kHang));
    const absl::Status end = hangs.Wait();
    CHECK(absl::IsUnavailable(end));
    CHECK(Has(end, "its worker stood still"));
  }
  SECTION("stopped, when something is asked of it") {
    REQUIRE(::kill(worker->View().pid, SIGSTOP) == 0);
    auto waits = world.Submit(worker->incarnation(), GpuWorld::Special(0));
    const absl::Status end = waits.Wait();
    INFO(end);
    // It may have been seen to the end before the signal came.
    if (!end.ok()) CHECK(Has(end, "its worker stood still"));
    if (end.ok()) ::kill(worker->View().pid, SIGCONT);
  }
  CHECK(worker->AddressOf(region).ok());
  CHECK(world.Submit(worker->incarnation(), GpuWorld::Special(0)).Wait().ok());
}

TEST_CASE("a worker with a kernel that does not end is not taken for a stuck one") {
  GpuWorkers::Options options = GpuWorld::Defaults();
  options.look = 1ms;
  options.silent_looks = 20;
  GpuWorld world(options);
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();
  const int32_t pid = worker->View().pid;
  auto never = world.Submit(worker->incarnation(), GpuWorld::Special(gpu::kNever));
  // Far more looks than make it stuck, each after some work of the worker's.
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(world.Submit(worker->incarnation(), GpuWorld::Special(0)).Wait().ok());
  }
  CHECK(worker->View().pid == pid);
  CHECK(worker->View().commands == 1);
  world.workers->Stop();
  const absl::Status end = never.Wait();
  CHECK(absl::IsUnavailable(end));
  CHECK(Has(end, "shuntd is stopping"));
}

TEST_CASE("a lost context ends what is under way with its cause, and the GPU is served on") {
  TheClient();  // before: it keeps its context
  const std::string control = TempFile("control", "");
  const Variable variable("SHUNT_FAKE_CUDA_CONTROL", control);
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();
  const HostGate gate(world);
  const uint64_t incarnation = worker->incarnation();
  auto waits = world.Submit(incarnation, Gated(GpuWorld::Special(0), gate.In(*worker, 4)));
  auto runs = world.Submit(incarnation, GpuWorld::Special(gpu::kNever));
  TempFile("control", "lose 700\n");  // CUDA_ERROR_ILLEGAL_ADDRESS
  for (auto* running : {&waits, &runs}) {
    const absl::Status end = running->Wait();
    INFO(end);
    CHECK(absl::IsUnavailable(end));
    CHECK(Has(end, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    CHECK(Has(end, worker->label()));
  }
  CHECK(gate.words->done == 4);
  CHECK(worker->AddressOf(region).ok());
  CHECK(worker->incarnation() == incarnation + 1);
  CHECK(world.Submit(worker->incarnation(), GpuWorld::Special(0)).Wait().ok());
  std::filesystem::remove(control);
}

TEST_CASE("memory in whose import workers end is refused, and does not cost the GPU") {
  TheClient();
  const std::string control = TempFile("control", "fail cuMemMap 0 700\n");
  const Variable variable("SHUNT_FAKE_CUDA_CONTROL", control);
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  // The worker answers with the lost context, or ends before it does.
  const auto refused = world.Register(session, world.ByFd(kUnit, memory.fd.get()));
  INFO(refused.status());
  CHECK_FALSE(refused.ok());
  CHECK(Has(refused.status(), world.worker()->label()));
  TempFile("control", "\n");
  CHECK(
      Eventually([&] { return world.Register(session, world.ByFd(kUnit, memory.fd.get())).ok(); }));
  CHECK(world.worker()->View().state == "ready");
  std::filesystem::remove(control);
}

TEST_CASE("a command that is cancelled before its stream comes ends, its gate released") {
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();
  const HostGate gate(world);
  auto waits =
      world.Submit(worker->incarnation(), Gated(GpuWorld::Special(0), gate.In(*worker, 2)));
  worker->Cancel(*waits.id);
  CHECK(absl::IsCancelled(waits.Wait()));
  CHECK(gate.words->done == 2);
  worker->Cancel(*waits.id);  // it has ended
  worker->Cancel(1);          // of a process that never was
  CHECK(world.Submit(worker->incarnation(), GpuWorld::Special(0)).Wait().ok());
}

TEST_CASE("as many commands as there are slots are under way, and no more") {
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto region = world.Region(session, memory);
  const auto worker = world.worker();
  const HostGate gate(world);
  const gpu::Gate one = gate.In(*worker, 1);
  std::vector<GpuWorld::Running> all;
  while (all.size() < gpu::kCommandSlots) {
    all.push_back(world.Submit(worker->incarnation(), Gated(GpuWorld::Special(0), one)));
    REQUIRE(all.back().id.ok());
  }
  const auto more = world.Submit(worker->incarnation(), GpuWorld::Special(0));
  CHECK(absl::IsResourceExhausted(more.id.status()));
  gate.words->trigger.store(1);
  for (auto& running : all) CHECK(running.Wait().ok());
  CHECK(world.Submit(worker->incarnation(), GpuWorld::Special(0)).Wait().ok());
}

TEST_CASE("a GPU whose worker keeps ending is given up in words, others are served on") {
  const Variable devices("SHUNT_FAKE_CUDA_DEVICES", "2");
  GpuWorkers::Options options = GpuWorld::Defaults();
  const std::string script =
      TempFile("worker.sh",
               "#!/bin/sh\ncase \"$*\" in *'--device 0 '*) echo no such luck >&2; exit 3;; "
               "esac\nexec \"" +
                   options.choice.worker + "\" \"$@\"\n");
  REQUIRE(::chmod(script.c_str(), 0755) == 0);
  options.choice.worker = script;
  options.deaths_max = 4;
  GpuWorld world(options);
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  for (int i = 0; i < 2; ++i) {
    const auto refused = world.Register(session, world.ByFd(kUnit, memory.fd.get()));
    INFO(refused.status());
    CHECK(absl::IsUnavailable(refused.status()));
    CHECK(Has(refused.status(), "GPU 0"));
    CHECK(Has(refused.status(), "is served no more: its worker ended 4 times"));
    CHECK(Has(refused.status(), "exit status 3 (no such luck)"));
  }
  CHECK(world.worker()->View().state == "given up");
  CHECK(Eventually([&] { return world.worker()->View().regions == 0; }));
  REQUIRE(world.workers->List().size() == 2);
  const auto other = world.workers->List()[1];
  DeviceRegions::Request request = world.ByFd(kUnit, memory.fd.get());
  request.device_uuid.assign(reinterpret_cast<const char*>(other->gpu().uuid.data()), 16);
  CHECK(world.Register(session, std::move(request)).ok());
  CHECK(other->View().state == "ready");
  std::filesystem::remove(script);
}

TEST_CASE("the GPUs that configuration names are served, and no process runs before one is used") {
  const Variable devices("SHUNT_FAKE_CUDA_DEVICES", "3");
  GpuWorkers::Options options = GpuWorld::Defaults();
  options.choice.devices = {"1", "GPU-"};
  {
    GpuWorld world(options);
    CHECK(world.workers->List().size() == 3);
  }
  options.choice.devices = {"1"};
  {
    GpuWorld world(options);
    REQUIRE(world.workers->List().size() == 1);
    const GpuView view = world.workers->List()[0]->View();
    CHECK(view.gpu.ordinal == 1);
    CHECK(view.state == "idle");
    CHECK(view.pid == 0);
    const auto other = world.workers->Find(world.client.uuid);
    CHECK(absl::IsUnimplemented(other.status()));
    CHECK(Has(other.status(), gpu::UuidText(view.gpu.uuid)));
  }
  options.choice.devices = {"1", "7"};
  {
    GpuWorld world(options);
    CHECK(world.workers->List().empty());
    CHECK(Has(world.workers->Find(world.client.uuid).status(), "gpu.devices names \"7\""));
  }
  options.choice.devices = {"all"};
  {
    const Variable none("SHUNT_FAKE_CUDA_DEVICES", "0");
    GpuWorld world(options);
    CHECK(world.workers->List().empty());
    CHECK(Has(world.workers->Find(world.client.uuid).status(), "it serves none: "));
  }
  options.choice.enabled = GpuChoice::Enabled::kOff;
  GpuWorld world(options);
  CHECK(Has(world.workers->Find(world.client.uuid).status(), "gpu.enabled is \"off\""));
}

TEST_CASE("a worker's environment is a part of the daemon's") {
  const char* const environment[] = {"PATH=/bin",
                                     "HOME=/root",
                                     "AWS_SECRET_KEY=x",
                                     "CUDA_VISIBLE_DEVICES=1",
                                     "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps",
                                     "NVIDIA_VISIBLE_DEVICES=all",
                                     "CUDA_MODULE_LOADING=LAZY",
                                     nullptr};
  using Texts = std::vector<std::string>;
  CHECK(WorkerEnvironment(environment, /*use_mps=*/false) ==
        Texts{"PATH=/bin", "CUDA_VISIBLE_DEVICES=1", "NVIDIA_VISIBLE_DEVICES=all",
              "CUDA_MODULE_LOADING=EAGER", "CUDA_MPS_PIPE_DIRECTORY=/nonexistent"});
  CHECK(WorkerEnvironment(environment, /*use_mps=*/true) ==
        Texts{"PATH=/bin", "CUDA_VISIBLE_DEVICES=1", "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps",
              "NVIDIA_VISIBLE_DEVICES=all", "CUDA_MODULE_LOADING=EAGER"});
}

TEST_CASE("UUIDs are written as CUDA's tools write them, and read back") {
  gpu::Uuid uuid{};
  for (size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(0x10 * i + 3);
  const std::string text = gpu::UuidText(uuid);
  CHECK(text == "GPU-03132333-4353-6373-8393-a3b3c3d3e3f3");
  CHECK(Value(gpu::ParseUuid(text)) == uuid);
  for (const std::string& wrong :
       {std::string(), std::string("GPU-"), text + "0", text.substr(1), text.substr(0, 39),
        std::string("GPU-03132333043530637308393-a3b3c3d3e3f3")}) {
    CHECK(absl::IsInvalidArgument(gpu::ParseUuid(wrong).status()));
  }
}

}  // namespace
}  // namespace shunt::daemon
