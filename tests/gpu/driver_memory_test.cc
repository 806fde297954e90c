// What the driver says of memory, and memory that crosses. On the fake and on a GPU.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/fd.h"
#include "runtime/gpu/driver.h"
#include "tests/gpu/cuda_program.h"
#include "tests/gpu/driver_child.h"
#include "tests/gpu/driver_world.h"

namespace shunt::gpu::testing {
namespace {

using Kind = PointerFacts::Kind;

std::vector<unsigned char> Bytes(DevicePtr from, size_t bytes) {
  std::vector<unsigned char> seen(bytes);
  CopyFromDevice(seen.data(), from, bytes);
  return seen;
}

bool AllAre(const std::vector<unsigned char>& bytes, unsigned char value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](unsigned char b) { return b == value; });
}

TEST_CASE("a GPU is described") {
  Driver& driver = *Value(Driver::Load());
  const int count = Value(driver.DeviceCount());
  REQUIRE(count >= 1);
  std::set<Uuid> uuids;
  std::set<std::string> buses;
  for (int i = 0; i < count; ++i) {
    const DeviceFacts facts = Value(driver.Describe(i));
    CHECK(facts.ordinal == i);
    CHECK(facts.uuid != Uuid{});
    CHECK(!facts.name.empty());
    CHECK(facts.total_bytes >= uint64_t{1} << 30);
    CHECK(facts.multiprocessors > 0);
    CHECK(facts.compute_major >= 5);
    CHECK(facts.vmm_descriptors);
    CHECK_THAT(facts.pci_bus_id,
               Catch::Matchers::Matches("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.0"));
    uuids.insert(facts.uuid);
    buses.insert(facts.pci_bus_id);
  }
  CHECK(uuids.size() == static_cast<size_t>(count));
  CHECK(buses.size() == static_cast<size_t>(count));
  CHECK(driver.Describe(count).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Driver::Load().value() == &driver);
}

TEST_CASE("nothing but RetainPrimary makes a context") {
  Driver& driver = *Value(Driver::Load());
  int on_stack = 0;
  CHECK(Value(driver.Current()) == nullptr);
  (void)Value(driver.Describe(0));
  (void)Value(driver.Facts(reinterpret_cast<DevicePtr>(&on_stack)));
  CHECK(!driver.Allocate(4096).ok());
  CHECK(!PrimaryContextExists(0));

  const Context context = Value(driver.RetainPrimary(0));
  CHECK(PrimaryContextExists(0));
  CHECK(Value(driver.Current()) == nullptr);
  CHECK(Value(driver.DeviceOf(context)) == 0);
  CHECK(Value(driver.Current()) == nullptr);
  Ok(driver.SetCurrent(context));
  CHECK(Value(driver.Current()) == context);
  std::thread([&] { CHECK(driver.Current().value() == nullptr); }).join();
  Ok(driver.SetCurrent(nullptr));
  driver.ReleasePrimary(0);
  CHECK(!PrimaryContextExists(0));
}

TEST_CASE("an allocation is known by any address in it") {
  World world;
  Driver& driver = world.driver;
  const uint64_t bytes = (5 << 20) + 4096;
  const DevicePtr memory = Value(driver.Allocate(bytes));
  const PointerFacts facts = Value(driver.Facts(memory));
  CHECK(facts.kind == Kind::kDevice);
  CHECK(facts.device == 0);
  CHECK(facts.base == memory);
  CHECK(facts.bytes == bytes);
  CHECK(facts.buffer_id != 0);
  CHECK(facts.ipc_capable);
  CHECK(!facts.vmm);
  CHECK(!facts.pool);
  const PointerFacts inside = Value(driver.Facts(memory + bytes - 1));
  CHECK(inside.base == memory);
  CHECK(inside.bytes == bytes);
  CHECK(inside.buffer_id == facts.buffer_id);

  const DevicePtr other = Value(driver.Allocate(bytes));
  CHECK(Value(driver.Facts(other)).buffer_id != facts.buffer_id);
  Ok(driver.Free(memory));
  CHECK(Value(driver.Facts(memory)).kind == Kind::kNone);
  // The same address may come again, the number never.
  const DevicePtr again = Value(driver.Allocate(bytes));
  CHECK(Value(driver.Facts(again)).buffer_id != facts.buffer_id);
  Ok(driver.Free(again));
  Ok(driver.Free(other));
}

TEST_CASE("memory that cannot cross is told apart") {
  World world;
  Driver& driver = world.driver;
  std::vector<std::byte> plain(4096);
  CHECK(Value(driver.Facts(reinterpret_cast<DevicePtr>(plain.data()))).kind == Kind::kNone);

  const DevicePtr managed = AllocateManaged(4096);
  CHECK(Value(driver.Facts(managed)).kind == Kind::kManaged);
  Ok(driver.Free(managed));

  const DevicePtr pooled = AllocateFromPool(4096, world.stream);
  const PointerFacts facts = Value(driver.Facts(pooled));
  CHECK(facts.kind == Kind::kDevice);
  CHECK(facts.pool);
  CHECK(!facts.ipc_capable);
  CHECK(!facts.vmm);
  FreeToPool(pooled, world.stream);

  void* const pinned = AllocatePinnedHost(4096);
  CHECK(Value(driver.Facts(reinterpret_cast<DevicePtr>(pinned))).kind == Kind::kHost);
  FreePinnedHost(pinned);

  Words words(driver);
  CHECK(Value(driver.Facts(words.address)).kind == Kind::kHost);

  const Unshareable own = AllocateUnshareable(0);
  const PointerFacts mapped = Value(driver.Facts(own.address));
  CHECK(mapped.vmm);
  CHECK(!mapped.ipc_capable);
  CHECK(driver.ExportVmm(own.address).status().code() == absl::StatusCode::kFailedPrecondition);
  Ok(driver.FreeVmm(own.address, own.bytes));
}

TEST_CASE("fills and copies move the bytes that they name") {
  World world;
  Driver& driver = world.driver;
  const DevicePtr memory = Value(driver.Allocate(8192));
  Ok(driver.FillAsync(memory, 0x11, 8192, world.stream));
  Ok(driver.FillAsync(memory + 100, 0x22, 50, world.stream));
  Ok(driver.CopyAsync(memory + 4096, memory + 90, 70, world.stream));
  Ok(driver.Synchronize(world.stream));
  Ok(driver.Query(world.stream));
  std::vector<unsigned char> expected(8192, 0x11);
  std::fill_n(expected.begin() + 100, 50, static_cast<unsigned char>(0x22));
  std::fill_n(expected.begin() + 4096 + 10, 50, static_cast<unsigned char>(0x22));
  CHECK(Bytes(memory, 8192) == expected);
  Ok(driver.Free(memory));
}

TEST_CASE("an allocation crosses as a descriptor") {
  World world;
  Driver& driver = world.driver;
  const Driver::MemoryInfo before = Value(driver.Memory());
  Driver::Exportable made = Value(driver.AllocateExportable(0, (3 << 20) + 1));
  CHECK(made.bytes >= (3 << 20) + 1);
  CHECK(made.bytes % 65536 == 0);
  CHECK(Value(driver.Memory()).free_bytes <= before.free_bytes - made.bytes);
  const PointerFacts facts = Value(driver.Facts(made.address + made.bytes / 2));
  CHECK(facts.kind == Kind::kDevice);
  CHECK(facts.vmm);
  CHECK(!facts.pool);
  CHECK(!facts.ipc_capable);
  CHECK(facts.base == made.address);
  CHECK(facts.bytes == made.bytes);
  CHECK(facts.buffer_id != 0);
  Ok(driver.FillAsync(made.address, 0x31, made.bytes, world.stream));
  Ok(driver.Synchronize(world.stream));

  const std::string bytes = std::to_string(made.bytes);
  Child first({"map", bytes, "49", "50"}, made.fd.get());
  CHECK(first.Line() == "0");
  CHECK(first.Wait() == 0);
  CHECK(AllAre(Bytes(made.address, made.bytes), 50));
  // Exported again from its address, as of memory that another made.
  UniqueFd again = Value(driver.ExportVmm(made.address + 4096));
  Child second({"map", bytes, "50", "51"}, again.get());
  CHECK(second.Line() == "0");
  CHECK(second.Wait() == 0);
  CHECK(AllAre(Bytes(made.address, made.bytes), 51));
  again.Reset();  // it holds the memory as a mapping does

  // Mapped twice in one process it is the same memory.
  const DevicePtr twin = Value(driver.MapVmm(made.fd.get(), 0, made.bytes));
  CHECK(twin != made.address);
  CHECK(AllAre(Bytes(twin, made.bytes), 51));
  Ok(driver.FreeVmm(twin, made.bytes));

  Ok(driver.FreeVmm(made.address, made.bytes));
  CHECK(Value(driver.Facts(made.address)).kind == Kind::kNone);
  made.fd.Reset();
  CHECK(Value(driver.Memory()).free_bytes >= before.free_bytes);
}

TEST_CASE("a number is not given to two allocations of cuMemCreate") {
  World world;
  Driver& driver = world.driver;
  std::set<uint64_t> numbers;
  for (int i = 0; i < 5; ++i) {
    const Driver::Exportable made = Value(driver.AllocateExportable(0, 1));
    numbers.insert(Value(driver.Facts(made.address)).buffer_id);
    Ok(driver.FreeVmm(made.address, made.bytes));
  }
  CHECK(numbers.size() == 5);
}

TEST_CASE("descriptors of anything else are refused") {
  World world;
  const UniqueFd file = Value(MakeSealedMemfd("other", 2 << 20));
  CHECK(!world.driver.MapVmm(file.get(), 0, 2 << 20).ok());
  const UniqueFd event = Value(MakeEventFd());
  CHECK(!world.driver.MapVmm(event.get(), 0, 2 << 20).ok());
  Driver::Exportable made = Value(world.driver.AllocateExportable(0, 1));
  // More than it is: what a liar says.
  CHECK(!world.driver.MapVmm(made.fd.get(), 0, 2 * made.bytes).ok());
  Ok(world.driver.FreeVmm(made.address, made.bytes));
}

TEST_CASE("an allocation crosses as an IPC handle") {
  World world;
  Driver& driver = world.driver;
  const DevicePtr memory = Value(driver.Allocate(4 << 20));
  Ok(driver.FillAsync(memory, 7, 4 << 20, world.stream));
  Ok(driver.Synchronize(world.stream));
  const IpcHandle handle = Value(driver.ExportIpc(memory));
  Child child({"open", ToHex(handle.data(), handle.size()), std::to_string(4 << 20), "7", "8"});
  CHECK(child.Line() == "0");
  CHECK(child.Wait() == 0);
  CHECK(AllAre(Bytes(memory, 4 << 20), 8));
  CHECK(!driver.OpenIpc(handle).ok());  // its own
  Ok(driver.Free(memory));
}

TEST_CASE("small allocations cross one by one") {
  World world;
  Driver& driver = world.driver;
  const DevicePtr memory[] = {Value(driver.Allocate(4096)), Value(driver.Allocate(4096))};
  for (const uint8_t i : {0, 1}) {
    Ok(driver.FillAsync(memory[i], static_cast<uint8_t>(20 + i), 4096, world.stream));
  }
  Ok(driver.Synchronize(world.stream));
  for (const int i : {1, 0}) {
    const IpcHandle handle = Value(driver.ExportIpc(memory[i]));
    Child child({"open", ToHex(handle.data(), handle.size()), "4096", std::to_string(20 + i),
                 std::to_string(30 + i)});
    CHECK(child.Line() == "0");
    CHECK(child.Wait() == 0);
  }
  for (const int i : {0, 1}) {
    CHECK(AllAre(Bytes(memory[i], 4096), static_cast<unsigned char>(30 + i)));
    Ok(driver.Free(memory[i]));
  }
}

TEST_CASE("an IPC handle ends with the process that made it") {
  World world;
  Driver& driver = world.driver;
  Child exporter({"export", "2097152", "9"});
  const std::string raw = FromHex(exporter.Line());
  IpcHandle handle;
  REQUIRE(raw.size() == handle.size());
  std::copy_n(reinterpret_cast<const std::byte*>(raw.data()), raw.size(), handle.begin());
  const DevicePtr memory = Value(driver.OpenIpc(handle));
  CHECK(AllAre(Bytes(memory, 2097152), 9));
  Ok(driver.CloseIpc(memory));
  exporter.Kill();
  CHECK(!driver.OpenIpc(handle).ok());
  // The context has not suffered.
  const DevicePtr own = Value(driver.Allocate(4096));
  Ok(driver.Free(own));
}

TEST_CASE("wrong addresses and sizes are refused by code") {
  World world;
  Driver& driver = world.driver;
  CHECK(driver.Allocate(0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(driver.AllocateExportable(0, 0).status().code() == absl::StatusCode::kInvalidArgument);
  const uint64_t all = Value(driver.Memory()).total_bytes;
  const absl::Status more = driver.Allocate(2 * all).status();
  CHECK(more.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(more.message()).find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
  CHECK(driver.AllocateExportable(0, 2 * all).status().code() ==
        absl::StatusCode::kResourceExhausted);
  Words words(driver);
  CHECK(driver.RegisterHost(words.mapping.data(), 4096).status().code() ==
        absl::StatusCode::kAlreadyExists);
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  CHECK(driver.UnregisterHost(page).code() == absl::StatusCode::kFailedPrecondition);
  ::munmap(page, 4096);
}

}  // namespace
}  // namespace shunt::gpu::testing
