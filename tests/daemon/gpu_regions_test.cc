// Regions of GPU memory: what is registered, refused, used, freed.
#include <fcntl.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "tests/daemon/gpu_world.h"

namespace shunt::daemon {
namespace {

bool Has(const absl::Status& status, const std::string& words) {
  return status.message().find(words) != absl::string_view::npos;
}

TEST_CASE("a region is imported when it is registered, and unmapped when it is freed") {
  GpuWorld world;
  const auto session = world.NewSession(), other = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, 3 * kUnit));
  const uint64_t id = Value(world.Register(session, world.ByFd(memory.bytes, memory.fd.get())));
  CHECK(world.Mappings() == 1);
  CHECK(world.regions.Has(session->id, id));
  CHECK(world.regions.SessionBytes(session->id) == 3 * kUnit);
  REQUIRE(world.regions.List(session->id).size() == 1);
  CHECK(world.regions.List(session->id)[0]->id == id);
  // Nobody learns what others hold.
  CHECK(absl::IsNotFound(world.regions.Find(other->id, id).status()));
  CHECK(absl::IsNotFound(world.regions.Free(other->id, id)));
  CHECK(world.regions.Free(session->id, id).ok());
  CHECK(absl::IsNotFound(world.regions.Free(session->id, id)));
  CHECK(Eventually([&] { return world.Mappings() == 0; }));
  CHECK(world.worker()->View().regions == 0);
}

TEST_CASE("a region in use is not freed, and the refusal names what uses it") {
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const uint64_t id = Value(world.Register(session, world.ByFd(memory.bytes, memory.fd.get())));
  {
    const DeviceUse use = Value(world.regions.Use(session->id, id, "all_reduce #4"));
    const absl::Status refused = world.regions.Free(session->id, id);
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK(Has(refused, absl::StrCat("region ", id, " is in use by all_reduce #4")));
    // The session's end takes it from the table; the worker keeps it as long as it is in use.
    session->ended.store(true);
    world.regions.SessionGone(session->id);
    CHECK(world.regions.List(session->id).empty());
    CHECK(world.worker()->View().regions == 1);
    CHECK(world.worker()->AddressOf(use.region).ok());
    CHECK(world.Mappings() == 1);
  }
  CHECK(Eventually([&] { return world.Mappings() == 0; }));
}

TEST_CASE("all of a session's regions go with it, also those that are being registered") {
  GpuWorld world;
  const auto session = world.NewSession();
  std::vector<gpu::Driver::Exportable> memory;
  for (int i = 0; i < 4; ++i) {
    memory.push_back(Value(world.client.driver.AllocateExportable(0, kUnit)));
    Value(world.Register(session, world.ByFd(kUnit, memory.back().fd.get())));
  }
  CHECK(world.Mappings() == 4);
  std::promise<absl::StatusOr<uint64_t>> late;
  session->ended.store(true);
  world.regions.SessionGone(session->id);
  world.regions.Register(session, world.ByFd(kUnit, memory[0].fd.get()),
                         [&late](const absl::StatusOr<uint64_t>& id) { late.set_value(id); });
  CHECK(absl::IsCancelled(late.get_future().get().status()));
  CHECK(Eventually([&] { return world.Mappings() == 0; }));
}

TEST_CASE("memory by IPC handle is opened, and refused in words where it cannot be") {
  GpuWorld world;
  const auto session = world.NewSession();
  const gpu::DevicePtr memory = Value(world.client.driver.Allocate(1 << 20));
  const gpu::IpcHandle handle = Value(world.client.driver.ExportIpc(memory));
  const uint64_t id = Value(world.Register(session, world.ByIpc(1 << 20, handle)));
  const auto region = Value(world.regions.Find(session->id, id));
  CHECK(region->is_ipc());
  *reinterpret_cast<char*>(memory) = 'q';
  const uint64_t address = Value(world.worker()->AddressOf(region));
  CHECK(world.Submit(world.worker()->incarnation(), GpuWorld::Copy(address, address + 8, 1))
            .Wait()
            .ok());
  CHECK(reinterpret_cast<char*>(memory)[8] == 'q');

  const auto refused = [&](const DeviceRegions::Request& asked, const std::string& words) {
    DeviceRegions::Request copy = world.Asked(asked.bytes);
    copy.ipc_handle = asked.ipc_handle;
    const absl::Status status = world.Register(session, std::move(copy)).status();
    INFO(status);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(Has(status, words));
    CHECK(Has(status, "PyTorch: expandable_segments"));
    CHECK(Has(status, world.worker()->label()));
  };
  refused(world.ByIpc((1 << 20) + 1, handle), "the allocation has 1048576 bytes, expected 1048577");
  gpu::IpcHandle garbage{};
  refused(world.ByIpc(1 << 20, garbage), "CUDA_ERROR_INVALID_VALUE");
  // As of a process that has gone: the exporter's memory is no longer there to be opened.
  const gpu::DevicePtr gone = Value(world.client.driver.Allocate(1 << 20));
  const gpu::IpcHandle stale = Value(world.client.driver.ExportIpc(gone));
  REQUIRE(world.client.driver.Free(gone).ok());
  refused(world.ByIpc(1 << 20, stale), "CUDA_ERROR_INVALID_CONTEXT");
  CHECK(world.regions.List(session->id).size() == 1);
  CHECK(Eventually([&] { return world.worker()->View().regions == 1; }));
  CHECK(world.worker()->View().restarts == 0);
}

TEST_CASE("what is no allocation, or another than was said, is refused in words") {
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto refused = [&](DeviceRegions::Request request, const std::string& words,
                           absl::StatusCode code = absl::StatusCode::kFailedPrecondition) {
    const absl::Status status = world.Register(session, std::move(request)).status();
    INFO(status);
    CHECK(status.code() == code);
    CHECK(Has(status, words));
  };
  refused(world.ByFd(2 * kUnit, memory.fd.get()), "4194304 bytes of GPU memory, by descriptor");
  refused(world.ByFd(4096, memory.fd.get()), "cannot open them");
  refused(world.ByFd(uint64_t{1} << 63, memory.fd.get()), "cannot open them",
          absl::StatusCode::kResourceExhausted);
  const UniqueFd plain = Value(MakeSealedMemfd("plain", kUnit));
  refused(world.ByFd(kUnit, plain.get()), "cannot open them");
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  refused(world.ByFd(kUnit, null.get()), "cannot open them");
  // What could hold up whoever closes it never gets to the worker.
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  refused(world.ByFd(kUnit, socket.get()), "is no exported GPU memory");
  const UniqueFd file(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  refused(world.ByFd(kUnit, file.get()), "is no exported GPU memory");

  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  refused(world.ByFd(0, memory.fd.get()), "0 bytes", kInvalid);
  refused(world.Asked(kUnit), "neither ipc_handle nor a descriptor", kInvalid);
  DeviceRegions::Request both = world.ByFd(kUnit, memory.fd.get());
  both.ipc_handle = std::string(64, 'x');
  refused(std::move(both), "both ipc_handle and a descriptor", kInvalid);
  DeviceRegions::Request shorter = world.Asked(kUnit);
  shorter.ipc_handle = "x";
  refused(std::move(shorter), "ipc_handle has 1 bytes, expected 64", kInvalid);
  DeviceRegions::Request nobody = world.ByFd(kUnit, memory.fd.get());
  nobody.device_uuid = "x";
  refused(std::move(nobody), "device_uuid has 1 bytes, expected 16", kInvalid);
  DeviceRegions::Request elsewhere = world.ByFd(kUnit, memory.fd.get());
  elsewhere.device_uuid = std::string(16, 'x');
  refused(std::move(elsewhere), "this daemon does not serve that GPU",
          absl::StatusCode::kUnimplemented);
  CHECK(world.worker()->View().restarts == 0);
  CHECK(Eventually([&] { return world.worker()->View().regions == 0; }));
  // And it serves on.
  CHECK(world.Register(session, world.ByFd(kUnit, memory.fd.get())).ok());
}

TEST_CASE("a session has so many regions of GPU memory as it may, and no more") {
  GpuWorld world;
  DeviceRegions few({.session_regions = 2, .total_regions = 3}, &world.table, world.workers.get());
  const auto session = world.NewSession(), other = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto add = [&](const std::shared_ptr<Session>& of) {
    std::promise<absl::StatusOr<uint64_t>> done;
    few.Register(of, world.ByFd(kUnit, memory.fd.get()),
                 [&done](const absl::StatusOr<uint64_t>& id) { done.set_value(id); });
    return done.get_future().get();
  };
  const uint64_t first = Value(add(session));
  CHECK(add(session).ok());
  const auto third = add(session);
  CHECK(absl::IsResourceExhausted(third.status()));
  CHECK(Has(third.status(), "max_regions_per_session"));
  CHECK(add(other).ok());
  CHECK(Has(add(other).status(), "all sessions together have 3"));
  CHECK(few.Free(session->id, first).ok());
  CHECK(add(other).ok());
  few.SessionGone(other->id);
  CHECK(add(session).ok());
}

TEST_CASE("10,000 registrations leave nothing behind, here or in the worker") {
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto once = [&] {
    const uint64_t id = Value(world.Register(session, world.ByFd(kUnit, memory.fd.get())));
    REQUIRE(world.regions.Free(session->id, id).ok());
  };
  for (int i = 0; i < 1000; ++i) once();
  const int32_t pid = world.worker()->View().pid;
  REQUIRE(Eventually([&] { return world.Mappings() == 0; }));
  const int64_t here = StatusKb(::getpid(), "VmRSS"), there = StatusKb(pid, "VmRSS");
  const size_t fds_here = Fds(::getpid()), fds_there = Fds(pid);
  for (int i = 0; i < 10'000; ++i) once();
  REQUIRE(Eventually([&] { return world.Mappings() == 0; }));
  CHECK(world.worker()->View().pid == pid);
  CHECK(StatusKb(::getpid(), "VmRSS") - here < 1024);
  CHECK(StatusKb(pid, "VmRSS") - there < 1024);
  CHECK(Fds(::getpid()) == fds_here);
  CHECK(Fds(pid) == fds_there);
}

TEST_CASE("host memory of a session is unmapped in the worker when the region is gone") {
  GpuWorld world;
  const auto session = world.NewSession();
  auto memory = Value(world.client.driver.AllocateExportable(0, kUnit));
  const auto device = world.Region(session, memory);
  const auto maps = [&] {
    return Lines(absl::StrCat("/proc/", world.worker()->View().pid, "/maps"), "shunt-region");
  };
  auto region = Value(world.table.Allocate(session->owner(), 1 << 20));
  const HostAddress address = Value(world.worker()->AddressOf(region));
  CHECK(address.cpu != 0);
  CHECK(Value(world.worker()->AddressOf(region)).device == address.device);
  CHECK(maps() == 1);
  REQUIRE(world.table.Free(session->id, region->id()).ok());
  CHECK(world.worker()->AddressOf(region).ok());  // held by an operation yet
  region = nullptr;
  CHECK(Eventually([&] { return maps() == 0; }));
}

}  // namespace
}  // namespace shunt::daemon
