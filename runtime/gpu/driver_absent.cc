// Where the build had no CUDA header: no driver is ever loaded, so nothing here is called but Load.
#include "absl/status/status.h"
#include "runtime/gpu/driver.h"

namespace shunt::gpu {
namespace {

absl::Status Absent() {
  return absl::UnimplementedError("this was built without the CUDA toolkit: no GPU memory");
}

}  // namespace

struct Driver::Api {};
Driver::Driver(std::unique_ptr<const Api> api) : api_(std::move(api)) {}
Driver::~Driver() = default;

absl::StatusOr<Driver*> Driver::Load() { return Absent(); }
absl::StatusOr<int> Driver::DeviceCount() { return Absent(); }
absl::StatusOr<DeviceFacts> Driver::Describe(int) { return Absent(); }
absl::StatusOr<Context> Driver::RetainPrimary(int) { return Absent(); }
void Driver::ReleasePrimary(int) {}
absl::Status Driver::SetCurrent(Context) { return Absent(); }
absl::StatusOr<Context> Driver::Current() { return Absent(); }
absl::StatusOr<Context> Driver::ContextOf(Stream) { return Absent(); }
absl::StatusOr<int> Driver::DeviceOf(Context) { return Absent(); }
absl::StatusOr<Driver::MemoryInfo> Driver::Memory() { return Absent(); }
absl::StatusOr<DevicePtr> Driver::Allocate(uint64_t) { return Absent(); }
absl::Status Driver::Free(DevicePtr) { return Absent(); }
absl::StatusOr<PointerFacts> Driver::Facts(DevicePtr) { return Absent(); }
absl::StatusOr<IpcHandle> Driver::ExportIpc(DevicePtr) { return Absent(); }
absl::StatusOr<DevicePtr> Driver::OpenIpc(const IpcHandle&) { return Absent(); }
absl::Status Driver::CloseIpc(DevicePtr) { return Absent(); }
absl::StatusOr<Driver::Exportable> Driver::AllocateExportable(int, uint64_t) { return Absent(); }
absl::StatusOr<UniqueFd> Driver::ExportVmm(DevicePtr) { return Absent(); }
absl::StatusOr<DevicePtr> Driver::MapVmm(int, int, uint64_t) { return Absent(); }
absl::Status Driver::FreeVmm(DevicePtr, uint64_t) { return Absent(); }
absl::StatusOr<DevicePtr> Driver::RegisterHost(void*, uint64_t) { return Absent(); }
absl::Status Driver::UnregisterHost(void*) { return Absent(); }
absl::StatusOr<Stream> Driver::CreateStream() { return Absent(); }
void Driver::DestroyStream(Stream) {}
absl::Status Driver::Synchronize(Stream) { return Absent(); }
absl::Status Driver::Query(Stream) { return Absent(); }
absl::Status Driver::Enqueue(Stream, absl::Span<const MemoryOp>) { return Absent(); }
absl::Status Driver::CopyAsync(DevicePtr, DevicePtr, uint64_t, Stream) { return Absent(); }
absl::Status Driver::FillAsync(DevicePtr, uint8_t, uint64_t, Stream) { return Absent(); }
absl::StatusOr<Event> Driver::CreateEvent() { return Absent(); }
void Driver::DestroyEvent(Event) {}
absl::Status Driver::Record(Event, Stream) { return Absent(); }
absl::Status Driver::QueryEvent(Event) { return Absent(); }
absl::StatusOr<float> Driver::MillisecondsBetween(Event, Event) { return Absent(); }
absl::StatusOr<Module> Driver::LoadModule(const void*) { return Absent(); }
void Driver::UnloadModule(Module) {}
absl::StatusOr<Function> Driver::FindFunction(Module, const char*) { return Absent(); }
absl::Status Driver::Launch(Function, const LaunchShape&, const void*, uint64_t, Stream) {
  return Absent();
}
absl::StatusOr<int> Driver::SetCaptureMode(int) { return Absent(); }
absl::StatusOr<CaptureFacts> Driver::Capturing(Stream) { return Absent(); }
absl::Status Driver::OnGraphDestroyed(Graph, void (*)(void*), void*) { return Absent(); }

}  // namespace shunt::gpu
