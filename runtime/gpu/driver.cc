// Codes: a lost context is DATA_LOSS; no memory RESOURCE_EXHAUSTED; not done UNAVAILABLE; a wrong
// value or handle INVALID_ARGUMENT; what this GPU, driver or state of it does not allow
// FAILED_PRECONDITION; the rest INTERNAL.
#include "runtime/gpu/driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

// The functions as this toolkit's header declares them, looked up by the names that it gives them
// (cuMemAlloc is cuMemAlloc_v2 and so on): all of these are in every driver since CUDA 12.0.
#define SHUNT_CUDA_FUNCTIONS(F)             \
  F(cuInit)                                 \
  F(cuDriverGetVersion)                     \
  F(cuGetErrorName)                         \
  F(cuGetErrorString)                       \
  F(cuDeviceGetCount)                       \
  F(cuDeviceGet)                            \
  F(cuDeviceGetName)                        \
  F(cuDeviceGetUuid)                        \
  F(cuDeviceGetPCIBusId)                    \
  F(cuDeviceGetAttribute)                   \
  F(cuDeviceTotalMem)                       \
  F(cuDevicePrimaryCtxRetain)               \
  F(cuDevicePrimaryCtxRelease)              \
  F(cuCtxSetCurrent)                        \
  F(cuCtxGetCurrent)                        \
  F(cuCtxPushCurrent)                       \
  F(cuCtxPopCurrent)                        \
  F(cuCtxGetDevice)                         \
  F(cuMemGetInfo)                           \
  F(cuMemAlloc)                             \
  F(cuMemFree)                              \
  F(cuPointerGetAttributes)                 \
  F(cuIpcGetMemHandle)                      \
  F(cuIpcOpenMemHandle)                     \
  F(cuIpcCloseMemHandle)                    \
  F(cuMemGetAllocationGranularity)          \
  F(cuMemGetAllocationPropertiesFromHandle) \
  F(cuMemCreate)                            \
  F(cuMemRelease)                           \
  F(cuMemRetainAllocationHandle)            \
  F(cuMemExportToShareableHandle)           \
  F(cuMemImportFromShareableHandle)         \
  F(cuMemAddressReserve)                    \
  F(cuMemAddressFree)                       \
  F(cuMemMap)                               \
  F(cuMemUnmap)                             \
  F(cuMemSetAccess)                         \
  F(cuMemHostRegister)                      \
  F(cuMemHostUnregister)                    \
  F(cuMemHostGetDevicePointer)              \
  F(cuStreamCreate)                         \
  F(cuStreamDestroy)                        \
  F(cuStreamSynchronize)                    \
  F(cuStreamQuery)                          \
  F(cuStreamGetCtx)                         \
  F(cuStreamBatchMemOp)                     \
  F(cuMemcpyAsync)                          \
  F(cuMemsetD8Async)                        \
  F(cuEventCreate)                          \
  F(cuEventDestroy)                         \
  F(cuEventRecord)                          \
  F(cuEventQuery)                           \
  F(cuModuleLoadData)                       \
  F(cuModuleUnload)                         \
  F(cuModuleGetFunction)                    \
  F(cuLaunchKernel)                         \
  F(cuThreadExchangeStreamCaptureMode)      \
  F(cuUserObjectCreate)                     \
  F(cuUserObjectRelease)                    \
  F(cuGraphRetainUserObject)

#define SHUNT_TEXT_OF(name) #name
#define SHUNT_TEXT(name) SHUNT_TEXT_OF(name)

namespace shunt::gpu {
namespace {

constexpr int kOldestDriver = 12000;

// Those whose newest form is younger than that, as the drivers since then have them.
using ElapsedTime = CUresult (*)(float*, CUevent, CUevent);
using CaptureInfo2 = CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                  const CUgraphNode**, size_t*);
using CaptureInfo3 = CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                  const CUgraphNode**, const void** edges, size_t*);

// The driver takes some numbers as pointers: addresses, and descriptors.
void* AsPointer(uint64_t number) {
  return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr)
}

CUcontext Raw(Context context) { return reinterpret_cast<CUcontext>(context); }
CUstream Raw(Stream stream) { return reinterpret_cast<CUstream>(stream); }
CUevent Raw(Event event) { return reinterpret_cast<CUevent>(event); }
CUmodule Raw(Module module) { return reinterpret_cast<CUmodule>(module); }
CUfunction Raw(Function function) { return reinterpret_cast<CUfunction>(function); }
CUgraph Raw(Graph graph) { return reinterpret_cast<CUgraph>(graph); }

absl::StatusCode CodeOf(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return absl::StatusCode::kOk;
    // The context is gone, and its work with it.
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return absl::StatusCode::kDataLoss;
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
      return absl::StatusCode::kResourceExhausted;
    case CUDA_ERROR_NOT_READY:
      return absl::StatusCode::kUnavailable;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
      return absl::StatusCode::kInvalidArgument;
    case CUDA_ERROR_NOT_FOUND:
      return absl::StatusCode::kNotFound;
    case CUDA_ERROR_ALREADY_MAPPED:
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
      return absl::StatusCode::kAlreadyExists;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_NOT_MAPPED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_ILLEGAL_STATE:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_MPS_SERVER_NOT_READY:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
    case CUDA_ERROR_CAPTURED_EVENT:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

struct Driver::Api {
#define SHUNT_DECLARE(name) decltype(&::name) name = nullptr;
  SHUNT_CUDA_FUNCTIONS(SHUNT_DECLARE)
#undef SHUNT_DECLARE
  ElapsedTime elapsed_time = nullptr;
  CaptureInfo2 capture_info_2 = nullptr;
  CaptureInfo3 capture_info_3 = nullptr;  // since CUDA 12.3

  absl::Status Find(void* library, const std::string& path) {
#define SHUNT_FIND(name)                                                                    \
  name = reinterpret_cast<decltype(name)>(::dlsym(library, SHUNT_TEXT(name)));              \
  if (name == nullptr) {                                                                    \
    return absl::UnavailableError(absl::StrCat("the CUDA driver ", path, " has no ",        \
                                               SHUNT_TEXT(name), ": expected CUDA ",        \
                                               VersionText(kOldestDriver), " or younger")); \
  }
    SHUNT_CUDA_FUNCTIONS(SHUNT_FIND)
#undef SHUNT_FIND
    elapsed_time = reinterpret_cast<ElapsedTime>(::dlsym(library, "cuEventElapsedTime"));
    capture_info_2 = reinterpret_cast<CaptureInfo2>(::dlsym(library, "cuStreamGetCaptureInfo_v2"));
    capture_info_3 = reinterpret_cast<CaptureInfo3>(::dlsym(library, "cuStreamGetCaptureInfo_v3"));
    if (elapsed_time == nullptr || (capture_info_2 == nullptr && capture_info_3 == nullptr)) {
      return absl::UnavailableError(
          absl::StrCat("the CUDA driver ", path,
                       " lacks cuEventElapsedTime or cuStreamGetCaptureInfo: expected CUDA ",
                       VersionText(kOldestDriver), " or younger"));
    }
    return absl::OkStatus();
  }

  // "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string Text(CUresult result, std::string_view call) const {
    const char* error_name = nullptr;
    const char* words = nullptr;
    if (cuGetErrorName(result, &error_name) != CUDA_SUCCESS || error_name == nullptr) {
      return absl::StrCat(std::string(call), ": error ", static_cast<int>(result), " of CUDA");
    }
    if (cuGetErrorString(result, &words) != CUDA_SUCCESS || words == nullptr) words = "no words";
    return absl::StrCat(std::string(call), ": ", error_name, " (", words, ")");
  }

  absl::Status Check(CUresult result, std::string_view call) const {
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    return absl::Status(CodeOf(result), Text(result, call));
  }

  // Without the nodes: what follows `graph` may be null in both forms.
  CUresult CaptureInfo(CUstream stream, CUstreamCaptureStatus* state, cuuint64_t* id,
                       CUgraph* graph) const {
    return capture_info_3 != nullptr
               ? capture_info_3(stream, state, id, graph, nullptr, nullptr, nullptr)
               : capture_info_2(stream, state, id, graph, nullptr, nullptr);
  }

  absl::StatusOr<int> Attribute(CUdevice device, CUdevice_attribute attribute) const;
  // Reserves addresses, maps all of `allocation` there and lets `device` reach it.
  absl::StatusOr<CUdeviceptr> Map(CUmemGenericAllocationHandle allocation, int device,
                                  uint64_t bytes) const;
  absl::StatusOr<UniqueFd> Export(CUmemGenericAllocationHandle allocation) const;
  // Of the memory at `address`; FAILED_PRECONDITION if its maker did not ask for descriptors.
  absl::StatusOr<UniqueFd> ExportIfMeant(CUmemGenericAllocationHandle allocation,
                                         DevicePtr address) const;
};

// Calls a function of the library and makes a status of its answer.
#define SHUNT_CUDA(name, ...) api_->Check(api_->name(__VA_ARGS__), #name)

Driver::Driver(std::unique_ptr<const Api> api) : api_(std::move(api)) {}
Driver::~Driver() = default;

absl::StatusOr<Driver*> Driver::Load() {
  // Never deleted: the library's own threads and exit handlers outlive static destructors.
  static const absl::StatusOr<Driver*>* const driver = [] {
    const char* const named = std::getenv("SHUNT_CUDA_LIBRARY");
    const std::string path = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
    auto load = [&path]() -> absl::StatusOr<Driver*> {
      void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) {
        const char* const why = ::dlerror();
        return absl::UnavailableError(absl::StrCat("no CUDA driver: cannot load ", path, ": ",
                                                   why == nullptr ? "no reason given" : why));
      }
      auto api = std::make_unique<Api>();
      SHUNT_RETURN_IF_ERROR(api->Find(library, path));
      int version = 0;
      if (api->cuDriverGetVersion(&version) != CUDA_SUCCESS) version = 0;
      if (version < kOldestDriver) {
        return absl::UnavailableError(absl::StrCat("the CUDA driver ", path, " is of CUDA ",
                                                   VersionText(version), ": expected ",
                                                   VersionText(kOldestDriver), " or younger"));
      }
      const std::string what =
          absl::StrCat("the CUDA driver ", path, " of CUDA ", VersionText(version));
      if (const CUresult result = api->cuInit(0); result != CUDA_SUCCESS) {
        return absl::UnavailableError(absl::StrCat(what, ": ", api->Text(result, "cuInit")));
      }
      int count = 0;
      if (const CUresult result = api->cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
        return absl::UnavailableError(
            absl::StrCat(what, ": ", api->Text(result, "cuDeviceGetCount")));
      }
      if (count == 0) return absl::UnavailableError(absl::StrCat(what, ": no GPU"));
      return new Driver(std::move(api));
    };
    return new absl::StatusOr<Driver*>(load());
  }();
  return *driver;
}

// ---- Devices, contexts

absl::StatusOr<int> Driver::DeviceCount() {
  int count = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuDeviceGetCount, &count));
  return count;
}

absl::StatusOr<int> Driver::Api::Attribute(CUdevice device, CUdevice_attribute attribute) const {
  int value = 0;
  SHUNT_RETURN_IF_ERROR(
      Check(cuDeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute"));
  return value;
}

absl::StatusOr<DeviceFacts> Driver::Describe(int device) {
  DeviceFacts facts;
  facts.ordinal = device;
  CUdevice handle = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuDeviceGet, &handle, device));
  static_assert(sizeof(CUuuid) == sizeof(Uuid));
  SHUNT_RETURN_IF_ERROR(
      SHUNT_CUDA(cuDeviceGetUuid, reinterpret_cast<CUuuid*>(facts.uuid.data()), handle));
  char text[256] = {};
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuDeviceGetName, text, sizeof(text) - 1, handle));
  facts.name = text;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuDeviceGetPCIBusId, text, sizeof(text) - 1, handle));
  facts.pci_bus_id = absl::AsciiStrToLower(text);  // as sysfs spells it
  size_t total = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuDeviceTotalMem, &total, handle));
  facts.total_bytes = total;
  SHUNT_ASSIGN_OR_RETURN(facts.multiprocessors,
                         api_->Attribute(handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  SHUNT_ASSIGN_OR_RETURN(facts.compute_major,
                         api_->Attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  SHUNT_ASSIGN_OR_RETURN(facts.compute_minor,
                         api_->Attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  SHUNT_ASSIGN_OR_RETURN(
      const int descriptors,
      api_->Attribute(handle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
  facts.vmm_descriptors = descriptors != 0;
  return facts;
}

absl::StatusOr<Context> Driver::RetainPrimary(int device) {
  CUdevice handle = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuDeviceGet, &handle, device));
  CUcontext context = nullptr;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuDevicePrimaryCtxRetain, &context, handle));
  return reinterpret_cast<Context>(context);
}

void Driver::ReleasePrimary(int device) {
  CUdevice handle = 0;
  if (api_->cuDeviceGet(&handle, device) == CUDA_SUCCESS) api_->cuDevicePrimaryCtxRelease(handle);
}

absl::Status Driver::SetCurrent(Context context) {
  return SHUNT_CUDA(cuCtxSetCurrent, Raw(context));
}

absl::StatusOr<Context> Driver::Current() {
  CUcontext context = nullptr;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuCtxGetCurrent, &context));
  return reinterpret_cast<Context>(context);
}

absl::StatusOr<Context> Driver::ContextOf(Stream stream) {
  CUcontext context = nullptr;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuStreamGetCtx, Raw(stream), &context));
  return reinterpret_cast<Context>(context);
}

absl::StatusOr<int> Driver::DeviceOf(Context context) {
  // The driver tells it of the current context only.
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuCtxPushCurrent, Raw(context)));
  CUdevice device = 0;
  absl::Status status = SHUNT_CUDA(cuCtxGetDevice, &device);
  CUcontext popped = nullptr;
  status.Update(SHUNT_CUDA(cuCtxPopCurrent, &popped));
  SHUNT_RETURN_IF_ERROR(status);
  return device;
}

absl::StatusOr<Driver::MemoryInfo> Driver::Memory() {
  size_t free_bytes = 0, total_bytes = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuMemGetInfo, &free_bytes, &total_bytes));
  return MemoryInfo{free_bytes, total_bytes};
}

// ---- Memory

absl::StatusOr<DevicePtr> Driver::Allocate(uint64_t bytes) {
  CUdeviceptr pointer = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuMemAlloc, &pointer, bytes));
  return pointer;
}

absl::Status Driver::Free(DevicePtr pointer) { return SHUNT_CUDA(cuMemFree, pointer); }

absl::StatusOr<PointerFacts> Driver::Facts(DevicePtr pointer) {
  // Of what it does not know the driver leaves or writes zeros.
  unsigned int type = 0, managed = 0, ipc_capable = 0;
  unsigned long long buffer_id = 0, block_id = 0;
  int device = -1;
  CUdeviceptr base = 0, mapping = 0;
  size_t bytes = 0, mapping_bytes = 0;
  CUmemoryPool pool = nullptr;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_BUFFER_ID,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
      CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
      CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
      CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID,
  };
  void* values[] = {&type,  &managed, &ipc_capable, &buffer_id,     &device,  &base,
                    &bytes, &pool,    &mapping,     &mapping_bytes, &block_id};
  static_assert(std::size(attributes) == std::size(values));
  SHUNT_RETURN_IF_ERROR(
      SHUNT_CUDA(cuPointerGetAttributes, std::size(attributes), attributes, values, pointer));

  PointerFacts facts{};
  facts.device = device;
  if (type == 0) return facts;
  facts.base = base;
  facts.bytes = bytes;
  facts.buffer_id = buffer_id;
  facts.ipc_capable = ipc_capable != 0;
  facts.pool = pool != nullptr;
  if (managed != 0) {
    facts.kind = PointerFacts::Kind::kManaged;
  } else if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) {
    facts.kind = PointerFacts::Kind::kDevice;
  } else {
    facts.kind =
        type == CU_MEMORYTYPE_HOST ? PointerFacts::Kind::kHost : PointerFacts::Kind::kArray;
  }
  if (facts.kind != PointerFacts::Kind::kDevice || facts.ipc_capable || facts.pool) return facts;
  // Neither cudaMalloc's nor a pool's. The driver has no attribute for the rest of the question.
  CUmemGenericAllocationHandle allocation = 0;
  if (api_->cuMemRetainAllocationHandle(&allocation, AsPointer(pointer)) != CUDA_SUCCESS) {
    return facts;
  }
  api_->cuMemRelease(allocation);
  facts.vmm = true;
  // The range of such memory is all addresses that were reserved, mapped or not, and its buffer id
  // theirs; what crosses is the mapping.
  facts.base = mapping;
  facts.bytes = mapping_bytes;
  facts.buffer_id = block_id;
  return facts;
}

absl::StatusOr<IpcHandle> Driver::ExportIpc(DevicePtr base) {
  IpcHandle handle{};
  static_assert(sizeof(CUipcMemHandle) == sizeof(IpcHandle));
  SHUNT_RETURN_IF_ERROR(
      SHUNT_CUDA(cuIpcGetMemHandle, reinterpret_cast<CUipcMemHandle*>(handle.data()), base));
  return handle;
}

absl::StatusOr<DevicePtr> Driver::OpenIpc(const IpcHandle& handle) {
  CUdeviceptr pointer = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuIpcOpenMemHandle, &pointer,
                                   *reinterpret_cast<const CUipcMemHandle*>(handle.data()),
                                   CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return pointer;
}

absl::Status Driver::CloseIpc(DevicePtr pointer) {
  return SHUNT_CUDA(cuIpcCloseMemHandle, pointer);
}

absl::StatusOr<CUdeviceptr> Driver::Api::Map(CUmemGenericAllocationHandle allocation, int device,
                                             uint64_t bytes) const {
  CUdeviceptr address = 0;
  SHUNT_RETURN_IF_ERROR(
      Check(cuMemAddressReserve(&address, bytes, 0, 0, 0), "cuMemAddressReserve"));
  absl::Status status = Check(cuMemMap(address, bytes, 0, allocation, 0), "cuMemMap");
  if (status.ok()) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    status = Check(cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
    if (status.ok()) return address;
    cuMemUnmap(address, bytes);
  }
  cuMemAddressFree(address, bytes);
  return status;
}

absl::StatusOr<UniqueFd> Driver::Api::Export(CUmemGenericAllocationHandle allocation) const {
  int fd = -1;
  SHUNT_RETURN_IF_ERROR(Check(
      cuMemExportToShareableHandle(&fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle"));
  UniqueFd owned(fd);
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return ErrnoStatus(errno, "fcntl FD_CLOEXEC");
  return owned;
}

absl::StatusOr<Driver::Exportable> Driver::AllocateExportable(int device, uint64_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  size_t unit = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuMemGetAllocationGranularity, &unit, &properties,
                                   CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  if (bytes == 0 || unit == 0 || bytes > UINT64_MAX - unit) {
    return absl::InvalidArgumentError(
        absl::StrCat("an allocation of GPU memory of ", bytes, " bytes"));
  }
  const uint64_t rounded = (bytes + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle allocation = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuMemCreate, &allocation, rounded, &properties, 0));
  absl::StatusOr<UniqueFd> fd = api_->Export(allocation);
  absl::StatusOr<CUdeviceptr> address =
      fd.ok() ? api_->Map(allocation, device, rounded) : fd.status();
  api_->cuMemRelease(allocation);  // the mapping holds it
  SHUNT_RETURN_IF_ERROR(address.status());
  return Exportable{*address, rounded, *std::move(fd)};
}

absl::StatusOr<UniqueFd> Driver::Api::ExportIfMeant(CUmemGenericAllocationHandle allocation,
                                                    DevicePtr address) const {
  CUmemAllocationProp properties{};
  SHUNT_RETURN_IF_ERROR(Check(cuMemGetAllocationPropertiesFromHandle(&properties, allocation),
                              "cuMemGetAllocationPropertiesFromHandle"));
  if ((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the allocation at 0x", absl::Hex(address), " was made with handle types ",
                     static_cast<int>(properties.requestedHandleTypes),
                     ": expected CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR among them"));
  }
  return Export(allocation);
}

absl::StatusOr<UniqueFd> Driver::ExportVmm(DevicePtr address) {
  CUmemGenericAllocationHandle allocation = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuMemRetainAllocationHandle, &allocation, AsPointer(address)));
  absl::StatusOr<UniqueFd> fd = api_->ExportIfMeant(allocation, address);
  api_->cuMemRelease(allocation);
  return fd;
}

absl::StatusOr<DevicePtr> Driver::MapVmm(int fd, int device, uint64_t bytes) {
  CUmemGenericAllocationHandle allocation = 0;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuMemImportFromShareableHandle, &allocation,
                                   AsPointer(static_cast<uint64_t>(fd)),
                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  absl::StatusOr<CUdeviceptr> address = api_->Map(allocation, device, bytes);
  api_->cuMemRelease(allocation);  // the mapping holds it
  return address;
}

absl::Status Driver::FreeVmm(DevicePtr address, uint64_t bytes) {
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuMemUnmap, address, bytes));
  return SHUNT_CUDA(cuMemAddressFree, address, bytes);
}

absl::StatusOr<DevicePtr> Driver::RegisterHost(void* memory, uint64_t bytes) {
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuMemHostRegister, memory, bytes,
                                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr pointer = 0;
  if (absl::Status status = SHUNT_CUDA(cuMemHostGetDevicePointer, &pointer, memory, 0);
      !status.ok()) {
    api_->cuMemHostUnregister(memory);
    return status;
  }
  return pointer;
}

absl::Status Driver::UnregisterHost(void* memory) {
  return SHUNT_CUDA(cuMemHostUnregister, memory);
}

// ---- Streams, events

absl::StatusOr<Stream> Driver::CreateStream() {
  CUstream stream = nullptr;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING));
  return reinterpret_cast<Stream>(stream);
}

void Driver::DestroyStream(Stream stream) { api_->cuStreamDestroy(Raw(stream)); }

absl::Status Driver::Synchronize(Stream stream) {
  return SHUNT_CUDA(cuStreamSynchronize, Raw(stream));
}

absl::Status Driver::Query(Stream stream) { return SHUNT_CUDA(cuStreamQuery, Raw(stream)); }

absl::Status Driver::Enqueue(Stream stream, absl::Span<const MemoryOp> ops) {
  absl::InlinedVector<CUstreamBatchMemOpParams, 8> params(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    params[i] = {};
    if (ops[i].kind == MemoryOp::Kind::kWrite) {
      params[i].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      params[i].writeValue.address = ops[i].address;
      params[i].writeValue.value = ops[i].value;
      params[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // after all that came before
    } else {
      params[i].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      params[i].waitValue.address = ops[i].address;
      params[i].waitValue.value = ops[i].value;
      params[i].waitValue.flags = ops[i].kind == MemoryOp::Kind::kWaitEqual
                                      ? CU_STREAM_WAIT_VALUE_EQ
                                      : CU_STREAM_WAIT_VALUE_GEQ;
    }
  }
  return SHUNT_CUDA(cuStreamBatchMemOp, Raw(stream), static_cast<unsigned int>(params.size()),
                    params.data(), 0);
}

absl::Status Driver::CopyAsync(DevicePtr destination, DevicePtr source, uint64_t bytes,
                               Stream stream) {
  return SHUNT_CUDA(cuMemcpyAsync, destination, source, bytes, Raw(stream));
}

absl::Status Driver::FillAsync(DevicePtr destination, uint8_t value, uint64_t bytes,
                               Stream stream) {
  return SHUNT_CUDA(cuMemsetD8Async, destination, value, bytes, Raw(stream));
}

absl::StatusOr<Event> Driver::CreateEvent() {
  CUevent event = nullptr;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuEventCreate, &event, CU_EVENT_DEFAULT));
  return reinterpret_cast<Event>(event);
}

void Driver::DestroyEvent(Event event) { api_->cuEventDestroy(Raw(event)); }

absl::Status Driver::Record(Event event, Stream stream) {
  return SHUNT_CUDA(cuEventRecord, Raw(event), Raw(stream));
}

absl::Status Driver::QueryEvent(Event event) { return SHUNT_CUDA(cuEventQuery, Raw(event)); }

absl::StatusOr<float> Driver::MillisecondsBetween(Event begin, Event end) {
  float milliseconds = 0;
  SHUNT_RETURN_IF_ERROR(
      api_->Check(api_->elapsed_time(&milliseconds, Raw(begin), Raw(end)), "cuEventElapsedTime"));
  return milliseconds;
}

// ---- Kernels

absl::StatusOr<Module> Driver::LoadModule(const void* image) {
  CUmodule module = nullptr;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuModuleLoadData, &module, image));
  return reinterpret_cast<Module>(module);
}

void Driver::UnloadModule(Module module) { api_->cuModuleUnload(Raw(module)); }

absl::StatusOr<Function> Driver::FindFunction(Module module, const char* name) {
  CUfunction function = nullptr;
  if (absl::Status status = SHUNT_CUDA(cuModuleGetFunction, &function, Raw(module), name);
      !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
  }
  return reinterpret_cast<Function>(function);
}

absl::Status Driver::Launch(Function function, const LaunchShape& shape, const void* parameters,
                            uint64_t /*parameter_bytes*/, Stream stream) {
  // Copied here and now; the driver knows its size from the kernel.
  void* list[] = {const_cast<void*>(parameters)};
  return SHUNT_CUDA(cuLaunchKernel, Raw(function), shape.blocks_x, shape.blocks_y, 1, shape.threads,
                    1, 1, shape.shared_bytes, Raw(stream), list, nullptr);
}

// ---- Capture

absl::StatusOr<int> Driver::SetCaptureMode(int mode) {
  static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
  auto exchanged = static_cast<CUstreamCaptureMode>(mode);
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuThreadExchangeStreamCaptureMode, &exchanged));
  return static_cast<int>(exchanged);
}

absl::StatusOr<CaptureFacts> Driver::Capturing(Stream stream) {
  CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  SHUNT_RETURN_IF_ERROR(
      api_->Check(api_->CaptureInfo(Raw(stream), &state, &id, &graph), "cuStreamGetCaptureInfo"));
  if (state == CU_STREAM_CAPTURE_STATUS_NONE) return CaptureFacts{};
  if (state == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return absl::FailedPreconditionError("the stream's capture failed before this call");
  }
  return CaptureFacts{.capturing = true, .id = id, .graph = reinterpret_cast<Graph>(graph)};
}

namespace {

// What a graph holds: calls back unless giving it to the graph failed.
struct Keepsake {
  void (*destroy)(void*);
  void* argument;
};

void DestroyKeepsake(void* opaque) {
  const std::unique_ptr<Keepsake> keepsake(static_cast<Keepsake*>(opaque));
  if (keepsake->destroy != nullptr) keepsake->destroy(keepsake->argument);
}

}  // namespace

absl::Status Driver::OnGraphDestroyed(Graph graph, void (*destroy)(void*), void* argument) {
  auto keepsake = std::make_unique<Keepsake>(Keepsake{destroy, argument});
  CUuserObject object = nullptr;
  SHUNT_RETURN_IF_ERROR(SHUNT_CUDA(cuUserObjectCreate, &object, keepsake.get(), DestroyKeepsake, 1,
                                   CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  Keepsake* const held = keepsake.release();
  absl::Status status =
      SHUNT_CUDA(cuGraphRetainUserObject, Raw(graph), object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (!status.ok()) {
    held->destroy = nullptr;
    api_->cuUserObjectRelease(object, 1);
  }
  return status;
}

}  // namespace shunt::gpu
