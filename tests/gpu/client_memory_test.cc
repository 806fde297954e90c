// libshunt's registrations of GPU memory, with a daemon that only remembers them.
#include <catch2/catch.hpp>
#include <string>

#include "client/src/cuda/device_memory.h"
#include "client/src/session.h"
#include "tests/gpu/client_script.h"
#include "tests/gpu/cuda_program.h"
#include "tests/gpu/driver_world.h"

namespace shunt::client {
namespace {

using cuda::DeviceMemory;
using gpu::DevicePtr;
using gpu::testing::Ok;
using gpu::testing::Value;
using gpu::testing::World;
using testing::ScriptedDaemon;

const void* Pointer(DevicePtr address) { return reinterpret_cast<const void*>(address); }

void Refused(const absl::Status& status, absl::StatusCode code, const std::string& words) {
  INFO(status.ToString());
  CHECK(status.code() == code);
  CHECK(status.message().find(words) != absl::string_view::npos);
}

struct Bench {
  World world;
  ScriptedDaemon daemon;
  std::shared_ptr<Session> session = daemon.Open();
  DeviceMemory& memory = session->device_memory();
  gpu::Driver& driver = world.driver;
};

TEST_CASE("an allocation is told to the daemon once, whatever part of it is named") {
  Bench b;
  const DevicePtr p = Value(b.driver.Allocate(1 << 20));
  Ok(b.memory.Register(Pointer(p + 4096)));
  const uint64_t asked = b.daemon.requests();
  Ok(b.memory.Register(Pointer(p)));
  CHECK(Value(b.memory.Find(Pointer(p + 100), 1000)).device);
  CHECK(b.daemon.requests() == asked);

  const auto registrations = b.daemon.registrations();
  REQUIRE(registrations.size() == 1);
  const auto facts = Value(b.driver.Describe(0));
  CHECK(registrations[0].request.device_uuid() ==
        std::string(reinterpret_cast<const char*>(facts.uuid.data()), facts.uuid.size()));
  CHECK(registrations[0].request.size_bytes() == 1 << 20);
  CHECK(registrations[0].request.ipc_handle().size() == 64);
  CHECK_FALSE(registrations[0].descriptor);
  const board::RegionRef ref = b.session->regions().Find(Pointer(p + 100), 1000);
  CHECK(ref.region == registrations[0].region_id);
  CHECK(ref.offset == 100);

  Ok(b.memory.Deregister(Pointer(p + 8)));
  CHECK(b.daemon.freed().empty());
  Ok(b.memory.Deregister(Pointer(p)));
  CHECK(b.daemon.freed() == std::vector<uint64_t>{ref.region});
  CHECK(b.session->regions().Find(Pointer(p), 1).region == 0);
  Refused(b.memory.Deregister(Pointer(p)), absl::StatusCode::kNotFound, "no registered allocation");
  Ok(b.driver.Free(p));
}

TEST_CASE("memory that was freed and came back at the same address is registered anew") {
  Bench b;
  const DevicePtr first = Value(b.driver.Allocate(1 << 20));
  Ok(b.memory.Register(Pointer(first)));
  const uint64_t old = b.daemon.registrations()[0].region_id;
  Ok(b.driver.Free(first));
  // Some driver gives the address again at once; this one has to be asked until it does.
  DevicePtr second = 0;
  std::vector<DevicePtr> others;
  for (int i = 0; i < 64 && second != first; ++i) {
    second = Value(b.driver.Allocate(1 << 20));
    others.push_back(second);
  }
  if (second != first) {
    WARN("the address did not come back");
  } else {
    CHECK(Value(b.memory.Find(Pointer(second), 16)).device);
    const auto registrations = b.daemon.registrations();
    REQUIRE(registrations.size() == 2);
    CHECK(b.daemon.freed() == std::vector<uint64_t>{old});
    CHECK(b.session->regions().Find(Pointer(second), 16).region == registrations[1].region_id);
  }
  for (const DevicePtr p : others) Ok(b.driver.Free(p));
}

TEST_CASE("memory of shunt_alloc_device crosses as a descriptor, and stays until it is freed") {
  Bench b;
  void* const p = Value(b.memory.Allocate(0, 100));
  const auto registrations = b.daemon.registrations();
  REQUIRE(registrations.size() == 1);
  CHECK(registrations[0].descriptor);
  CHECK(registrations[0].request.ipc_handle().empty());
  CHECK(registrations[0].request.size_bytes() >= 100);
  const uint32_t value = 7;
  gpu::testing::CopyToDevice(reinterpret_cast<DevicePtr>(p), &value, sizeof(value));

  Ok(b.memory.Register(p));
  Ok(b.memory.Deregister(p));
  Refused(b.memory.Deregister(p), absl::StatusCode::kFailedPrecondition, "until shunt_free_device");
  Refused(b.memory.Free(static_cast<char*>(p) + 8), absl::StatusCode::kNotFound,
          "no memory of shunt_alloc_device");
  Ok(b.memory.Free(p));
  CHECK(b.daemon.freed().size() == 1);
  Refused(b.memory.Free(p), absl::StatusCode::kNotFound, "no memory of shunt_alloc_device");
  Refused(b.memory.Allocate(9, 100).status(), absl::StatusCode::kInvalidArgument, "device 9");
}

TEST_CASE("memory that cannot be shared is refused in words, and nothing is asked of the daemon") {
  Bench b;
  const uint64_t asked = b.daemon.requests();
  int on_stack = 0;
  Refused(b.memory.Register(&on_stack), absl::StatusCode::kInvalidArgument, "is no CUDA memory");
  void* const pinned = gpu::testing::AllocatePinnedHost(4096);
  Refused(b.memory.Register(pinned), absl::StatusCode::kInvalidArgument, "host memory");
  CHECK_FALSE(Value(b.memory.Find(pinned, 16)).device);
  gpu::testing::FreePinnedHost(pinned);
  const DevicePtr managed = gpu::testing::AllocateManaged(4096);
  Refused(b.memory.Register(Pointer(managed)), absl::StatusCode::kFailedPrecondition,
          "managed memory");
  Refused(b.memory.Find(Pointer(managed), 16).status(), absl::StatusCode::kFailedPrecondition,
          "managed memory");
  const DevicePtr pool = gpu::testing::AllocateFromPool(4096, b.world.stream);
  Ok(b.driver.Synchronize(b.world.stream));
  Refused(b.memory.Register(Pointer(pool)), absl::StatusCode::kFailedPrecondition, "memory pool");
  gpu::testing::FreeToPool(pool, b.world.stream);
  Ok(b.driver.Free(managed));
  const auto unshareable = gpu::testing::AllocateUnshareable(0);
  CHECK(absl::IsFailedPrecondition(b.memory.Register(Pointer(unshareable.address))));
  Ok(b.driver.FreeVmm(unshareable.address, unshareable.bytes));
  CHECK(b.daemon.requests() == asked);
  CHECK_FALSE(Value(b.memory.Find(&on_stack, 4)).device);
}

TEST_CASE("a buffer that reaches beyond its allocation is refused with both named") {
  Bench b;
  const DevicePtr p = Value(b.driver.Allocate(4096));
  const auto found = b.memory.Find(Pointer(p + 4000), 200);
  Refused(found.status(), absl::StatusCode::kInvalidArgument, "reaches beyond its allocation of");
  Ok(b.driver.Free(p));
}

TEST_CASE("what the daemon says against a registration reaches the caller, and is asked again") {
  Bench b;
  const DevicePtr p = Value(b.driver.Allocate(4096));
  b.daemon.RefuseNext(12, "this daemon has no such GPU");
  Refused(b.memory.Register(Pointer(p)), absl::StatusCode::kUnimplemented, "no such GPU");
  CHECK(b.session->regions().Find(Pointer(p), 1).region == 0);
  Ok(b.memory.Register(Pointer(p)));
  b.daemon.Die();
  const DevicePtr q = Value(b.driver.Allocate(4096));
  Refused(b.memory.Register(Pointer(q)), absl::StatusCode::kUnavailable, "shuntd is gone");
  // What is known needs nobody.
  Ok(b.memory.Register(Pointer(p)));
  Ok(b.driver.Free(q));
  Ok(b.driver.Free(p));
}

}  // namespace
}  // namespace shunt::client
