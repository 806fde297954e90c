// gpu_driver_child: see driver_child.h. Prints lines; ends when its input does.
//
//   load                     "OK", or the status with which loading the driver ends
//   export BYTES PATTERN     allocates, fills, prints the IPC handle, waits
//   open HANDLE BYTES OLD NEW
//                            opens it, prints the sum of bytes that differ from OLD, fills with NEW
//   map BYTES OLD NEW        the same with the exported allocation at descriptor 3
//   store VALUE              the first word of the memory file at descriptor 3
//   lose                     of the fake: loses the context while a stream waits; then prints what
//                            calls answer
//   wait                     prints once a stream waits for a word that nobody stores, then how
//                            that ends
//   pci                      of its first GPU
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/core/fd.h"
#include "runtime/core/status.h"
#include "runtime/gpu/driver.h"
#include "tests/gpu/cuda_program.h"
#include "tests/gpu/driver_child.h"

namespace shunt::gpu::testing {
namespace {

void Print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void WaitForInputsEnd() {
  char c;
  while (::read(0, &c, 1) > 0) {
  }
}

// How many bytes are not `old_value`; then all are `new_value`.
absl::StatusOr<uint64_t> Exchange(Driver& driver, DevicePtr memory, uint64_t bytes, int old_value,
                                  int new_value) {
  std::vector<unsigned char> seen(bytes);
  CopyFromDevice(seen.data(), memory, bytes);
  uint64_t other = 0;
  for (const unsigned char byte : seen) other += byte != old_value;
  SHUNT_RETURN_IF_ERROR(driver.FillAsync(memory, static_cast<uint8_t>(new_value), bytes, nullptr));
  SHUNT_RETURN_IF_ERROR(driver.Synchronize(nullptr));
  return other;
}

absl::Status Lose(Driver& driver) {
  SHUNT_ASSIGN_OR_RETURN(const UniqueFd file, MakeSealedMemfd("words", 4096));
  SHUNT_ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Map(file.get(), 4096));
  SHUNT_ASSIGN_OR_RETURN(const DevicePtr word, driver.RegisterHost(mapping.data(), 4096));
  SHUNT_ASSIGN_OR_RETURN(const Stream stream, driver.CreateStream());
  SHUNT_ASSIGN_OR_RETURN(const Event event, driver.CreateEvent());
  SHUNT_RETURN_IF_ERROR(driver.Enqueue(stream, {{{MemoryOp::Kind::kWaitEqual, word, 1}}}));
  SHUNT_RETURN_IF_ERROR(driver.Record(event, stream));
  reinterpret_cast<void (*)(int)>(LibraryFunction("shunt_fake_cuda_lose"))(700);
  for (const absl::Status& status :
       {driver.Synchronize(stream), driver.Query(stream), driver.QueryEvent(event),
        driver.Allocate(4096).status(), driver.Memory().status(), driver.CreateStream().status(),
        driver.Facts(word).status(), driver.AllocateExportable(0, 1).status(),
        driver.Capturing(stream).status(), driver.RetainPrimary(0).status(),
        driver.Enqueue(stream, {{{MemoryOp::Kind::kWrite, word, 1}}}),
        driver.FillAsync(word, 0, 4, stream)}) {
    Print(status.ToString());
  }
  return absl::OkStatus();
}

absl::Status Wait(Driver& driver) {
  SHUNT_ASSIGN_OR_RETURN(const UniqueFd file, MakeSealedMemfd("words", 4096));
  SHUNT_ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Map(file.get(), 4096));
  SHUNT_ASSIGN_OR_RETURN(const DevicePtr word, driver.RegisterHost(mapping.data(), 4096));
  SHUNT_ASSIGN_OR_RETURN(const Stream stream, driver.CreateStream());
  SHUNT_RETURN_IF_ERROR(driver.Enqueue(stream, {{{MemoryOp::Kind::kWaitEqual, word, 1}}}));
  Print("waits");
  Print(driver.Synchronize(stream).ToString());
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& words) {
  const std::string& verb = words[0];
  if (verb == "store") {
    SHUNT_ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Map(3, 4096));
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(mapping.data()))
        .store(static_cast<uint32_t>(std::stoul(words[1])), std::memory_order_release);
    Print("stored");
    return absl::OkStatus();
  }
  SHUNT_ASSIGN_OR_RETURN(Driver* const driver, Driver::Load());
  if (verb == "load") {
    Print("OK");
    return absl::OkStatus();
  }
  if (verb == "pci") {
    SHUNT_ASSIGN_OR_RETURN(const DeviceFacts facts, driver->Describe(0));
    Print(facts.pci_bus_id);
    return absl::OkStatus();
  }
  SHUNT_ASSIGN_OR_RETURN(const Context context, driver->RetainPrimary(0));
  SHUNT_RETURN_IF_ERROR(driver->SetCurrent(context));
  if (verb == "lose") return Lose(*driver);
  if (verb == "wait") return Wait(*driver);
  if (verb == "export") {
    const uint64_t bytes = std::stoull(words[1]);
    SHUNT_ASSIGN_OR_RETURN(const DevicePtr memory, driver->Allocate(bytes));
    SHUNT_RETURN_IF_ERROR(
        driver->FillAsync(memory, static_cast<uint8_t>(std::stoi(words[2])), bytes, nullptr));
    SHUNT_RETURN_IF_ERROR(driver->Synchronize(nullptr));
    SHUNT_ASSIGN_OR_RETURN(const IpcHandle handle, driver->ExportIpc(memory));
    Print(ToHex(handle.data(), handle.size()));
    WaitForInputsEnd();
    return absl::OkStatus();
  }
  if (verb == "open") {
    IpcHandle handle;
    const std::string raw = FromHex(words[1]);
    std::memcpy(handle.data(), raw.data(), handle.size());
    SHUNT_ASSIGN_OR_RETURN(const DevicePtr memory, driver->OpenIpc(handle));
    SHUNT_ASSIGN_OR_RETURN(
        const uint64_t other,
        Exchange(*driver, memory, std::stoull(words[2]), std::stoi(words[3]), std::stoi(words[4])));
    SHUNT_RETURN_IF_ERROR(driver->CloseIpc(memory));
    Print(std::to_string(other));
    return absl::OkStatus();
  }
  if (verb == "map") {
    const uint64_t bytes = std::stoull(words[1]);
    SHUNT_ASSIGN_OR_RETURN(const DevicePtr memory, driver->MapVmm(3, 0, bytes));
    SHUNT_ASSIGN_OR_RETURN(
        const uint64_t other,
        Exchange(*driver, memory, bytes, std::stoi(words[2]), std::stoi(words[3])));
    SHUNT_RETURN_IF_ERROR(driver->FreeVmm(memory, bytes));
    Print(std::to_string(other));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(verb);
}

}  // namespace
}  // namespace shunt::gpu::testing

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const absl::Status status = shunt::gpu::testing::Run({argv + 1, argv + argc});
  if (!status.ok()) shunt::gpu::testing::Print(status.ToString());
  return status.ok() ? 0 : 1;
}
