// The seam to the CUDA driver: libcuda.so.1, found at run time. Everything that calls CUDA goes
// through it, so no other file needs the toolkit, and one binary serves machines with and without a
// GPU. $SHUNT_CUDA_LIBRARY names another library: tests put one there that has no GPU
// (tests/gpu/fake_cuda), so that order, caches, aborts and death can be tried everywhere.
//
// Calls act on the calling thread's current context, as the driver's do. Errors carry the driver's
// name for them; driver.cc says which code becomes which. A context that is
// lost (an illegal address, ECC, a killed neighbour) answers everything with DATA_LOSS.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/fd.h"

namespace shunt::gpu {

using DevicePtr = uint64_t;
using Uuid = std::array<std::byte, 16>;
using IpcHandle = std::array<std::byte, 64>;
// The driver's own handles: CUcontext, CUstream, CUevent, CUmodule, CUfunction, CUgraph.
struct ContextTag;
struct StreamTag;
struct EventTag;
struct ModuleTag;
struct FunctionTag;
struct GraphTag;
using Context = ContextTag*;
using Stream = StreamTag*;  // null: the legacy default stream
using Event = EventTag*;
using Module = ModuleTag*;
using Function = FunctionTag*;
using Graph = GraphTag*;

struct DeviceFacts {
  int ordinal = 0;
  Uuid uuid{};
  std::string name;
  std::string pci_bus_id;  // "0000:19:00.0"
  uint64_t total_bytes = 0;
  int multiprocessors = 0;
  int compute_major = 0, compute_minor = 0;
  bool vmm_descriptors = false;  // allocations can cross as descriptors
};

// What an address is. Of memory that CUDA does not know, kind is kNone.
struct PointerFacts {
  enum class Kind : uint8_t { kNone, kHost, kDevice, kManaged, kArray };
  Kind kind = Kind::kNone;
  int device;
  DevicePtr base = 0;        // of the allocation
  uint64_t bytes = 0;        // of the allocation
  uint64_t buffer_id = 0;    // never used again in this process
  bool ipc_capable = false;  // cuIpcGetMemHandle may work
  bool vmm = false;          // made by cuMemCreate
  bool pool = false;         // made by a memory pool
};

struct CaptureFacts {
  bool capturing = false;
  uint64_t id = 0;
  Graph graph = nullptr;
};

struct LaunchShape {
  uint32_t blocks_x = 1, blocks_y = 1, threads = 1, shared_bytes = 0;
};

// One memory operation of a stream, on a 32-bit word that the device can reach.
struct MemoryOp {
  enum class Kind : uint8_t { kWrite, kWaitEqual, kWaitAtLeast };  // at least: signed difference
  Kind kind = Kind::kWrite;
  DevicePtr address = 0;
  uint32_t value = 0;
};

// Thread-safe, as far as the driver is.
class Driver {
 public:
  // Of this process, from libcuda.so.1. UNAVAILABLE, in words: there is no driver, or no GPU; or it
  // is older than what this was built for. Once a process; later calls give the same.
  static absl::StatusOr<Driver*> Load();

  absl::StatusOr<int> DeviceCount();
  absl::StatusOr<DeviceFacts> Describe(int device);

  // ---- Contexts
  absl::StatusOr<Context> RetainPrimary(int device);
  void ReleasePrimary(int device);
  absl::Status SetCurrent(Context context);
  absl::StatusOr<Context> Current();  // null: none
  absl::StatusOr<Context> ContextOf(Stream stream);
  absl::StatusOr<int> DeviceOf(Context context);
  // Free and all, of the current context's GPU.
  struct MemoryInfo {
    uint64_t free_bytes, total_bytes;
  };
  absl::StatusOr<MemoryInfo> Memory();

  // ---- Memory
  absl::StatusOr<DevicePtr> Allocate(uint64_t bytes);
  absl::Status Free(DevicePtr pointer);
  absl::StatusOr<PointerFacts> Facts(DevicePtr pointer);
  absl::StatusOr<IpcHandle> ExportIpc(DevicePtr base);
  absl::StatusOr<DevicePtr> OpenIpc(const IpcHandle& handle);
  absl::Status CloseIpc(DevicePtr pointer);
  // An allocation on `device` that can cross as a descriptor; a multiple of the granularity.
  struct Exportable {
    DevicePtr address = 0;
    uint64_t bytes = 0;
    UniqueFd fd;
  };
  absl::StatusOr<Exportable> AllocateExportable(int device, uint64_t bytes);
  // Of memory that is mapped at `address` with cuMemMap; FAILED_PRECONDITION if its maker did not
  // ask for descriptors.
  absl::StatusOr<UniqueFd> ExportVmm(DevicePtr address);
  // Maps an exported allocation; also FreeVmm's for AllocateExportable.
  absl::StatusOr<DevicePtr> MapVmm(int fd, int device, uint64_t bytes);
  absl::Status FreeVmm(DevicePtr address, uint64_t bytes);
  // Pins host memory and gives the address by which kernels reach it.
  absl::StatusOr<DevicePtr> RegisterHost(void* memory, uint64_t bytes);
  absl::Status UnregisterHost(void* memory);

  // ---- Streams, events
  absl::StatusOr<Stream> CreateStream();  // non-blocking
  void DestroyStream(Stream stream);
  absl::Status Synchronize(Stream stream);
  // UNAVAILABLE while work is left.
  absl::Status Query(Stream stream);
  absl::Status Enqueue(Stream stream, absl::Span<const MemoryOp> ops);
  absl::Status CopyAsync(DevicePtr destination, DevicePtr source, uint64_t bytes, Stream stream);
  absl::Status FillAsync(DevicePtr destination, uint8_t value, uint64_t bytes, Stream stream);
  absl::StatusOr<Event> CreateEvent();
  void DestroyEvent(Event event);
  absl::Status Record(Event event, Stream stream);
  absl::Status QueryEvent(Event event);  // as Query
  absl::StatusOr<float> MillisecondsBetween(Event begin, Event end);

  // ---- Kernels
  absl::StatusOr<Module> LoadModule(const void* image);
  void UnloadModule(Module module);
  absl::StatusOr<Function> FindFunction(Module module, const char* name);
  // `parameters`: one struct by value, the kernel's only parameter.
  absl::Status Launch(Function function, const LaunchShape& shape, const void* parameters,
                      uint64_t parameter_bytes, Stream stream);

  // ---- Capture
  // Which calls of this thread a capture under way forbids, as CUstreamCaptureMode; returns what it
  // was.
  static constexpr int kCaptureRelaxed = 2;  // none
  absl::StatusOr<int> SetCaptureMode(int mode);
  absl::StatusOr<CaptureFacts> Capturing(Stream stream);
  // Calls destroy(argument) once the graph and all that was made from it are gone, on a thread of
  // the driver's, which must not call CUDA.
  absl::Status OnGraphDestroyed(Graph graph, void (*destroy)(void*), void* argument);

 private:
  struct Api;  // the library's functions
  explicit Driver(std::unique_ptr<const Api> api);
  ~Driver();
  const std::unique_ptr<const Api> api_;
};

}  // namespace shunt::gpu
