// Init, errors, devices, contexts.
#include <cuda.h>

#include <cstdio>
#include <cstring>

#include "tests/gpu/fake_cuda/state.h"
#include "tests/gpu/fake_cuda/stream.h"

using namespace shunt::fake_cuda;

namespace {

struct Error {
  CUresult code;
  const char* name;
  const char* words;
};

constexpr Error kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the memory is registered already"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "the memory is not registered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "the capture failed because of an earlier error"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency on uncaptured work in another stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const Error* Find(CUresult code) {
  for (const Error& error : kErrors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

bool Valid(CUdevice device) {
  return device >= 0 && static_cast<size_t>(device) < Devices().size();
}

// Null if it is no context that is alive. With Lock() held.
Context* Find(CUcontext raw) {
  for (Device& device : Devices()) {
    if (&device.context == reinterpret_cast<Context*>(raw) && device.context.retained > 0) {
      return &device.context;
    }
  }
  return nullptr;
}

CUcontext Raw(Context* context) { return reinterpret_cast<CUcontext>(context); }

}  // namespace

CUresult cuInit(unsigned int flags) {
  FAKE_ENTER(cuInit, kAnything);
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : static_cast<CUresult>(Init());
}

CUresult cuDriverGetVersion(int* version) {
  *version = Version();
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char** text) {
  const Error* const error = Find(code);
  *text = error == nullptr ? nullptr : error->name;
  return error == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char** text) {
  const Error* const error = Find(code);
  *text = error == nullptr ? nullptr : error->words;
  return error == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  FAKE_ENTER(cuDeviceGetCount, kInit);
  *count = static_cast<int>(Devices().size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_ENTER(cuDeviceGet, kInit);
  if (!Valid(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  FAKE_ENTER(cuDeviceGetName, kInit);
  if (!Valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU %d",
                Devices()[static_cast<size_t>(device)].physical);
  return CUDA_SUCCESS;
}

// Equal in all processes, different between devices: ...00 is the first one's.
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  FAKE_ENTER(cuDeviceGetUuid, kInit);
  if (!Valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, "shunt-fake-cuda", 15);
  uuid->bytes[15] = static_cast<char>(Devices()[static_cast<size_t>(device)].physical);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  FAKE_ENTER(cuDeviceGetPCIBusId, kInit);
  if (!Valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0",
                0xA0 + Devices()[static_cast<size_t>(device)].physical);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  FAKE_ENTER(cuDeviceGetAttribute, kInit);
  if (!Valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      *value = 1;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  FAKE_ENTER(cuDeviceTotalMem, kInit);
  if (!Valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = Devices()[static_cast<size_t>(device)].total_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxRetain, kLive);
  const std::lock_guard lock(Lock());
  if (!Valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& primary = Devices()[static_cast<size_t>(device)].context;
  ++primary.retained;
  if (primary.default_stream == nullptr) primary.default_stream = Stream::Make(&primary);
  *context = Raw(&primary);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxRelease, kInit);
  const std::lock_guard lock(Lock());
  if (!Valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& primary = Devices()[static_cast<size_t>(device)].context;
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --primary.retained;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  FAKE_ENTER(cuDevicePrimaryCtxGetState, kInit);
  const std::lock_guard lock(Lock());
  if (!Valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = Devices()[static_cast<size_t>(device)].context.retained > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext raw) {
  FAKE_ENTER(cuCtxSetCurrent, kInit);
  const std::lock_guard lock(Lock());
  std::vector<Context*>& stack = CurrentStack();
  Context* const context = raw == nullptr ? nullptr : Find(raw);
  if (raw != nullptr && context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  FAKE_ENTER(cuCtxGetCurrent, kInit);
  *context = Raw(Current());
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext raw) {
  FAKE_ENTER(cuCtxPushCurrent, kInit);
  const std::lock_guard lock(Lock());
  Context* const context = Find(raw);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CurrentStack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  FAKE_ENTER(cuCtxPopCurrent, kInit);
  std::vector<Context*>& stack = CurrentStack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = Raw(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_ENTER(cuCtxGetDevice, kInit);
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = Current()->device;
  return CUDA_SUCCESS;
}
