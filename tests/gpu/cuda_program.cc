#include "tests/gpu/cuda_program.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/core/check.h"

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
// Ends the test with the words if the call fails.
#define CALL(name, ...) \
  Expect(reinterpret_cast<decltype(&::name)>(LibraryFunction(TEXT(name)))(__VA_ARGS__), #name)

namespace shunt::gpu::testing {
namespace {

CUstream Raw(Stream stream) { return reinterpret_cast<CUstream>(stream); }

void Expect(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d of CUDA\n", what, static_cast<int>(result));
  std::abort();
}

}  // namespace

void* LibraryFunction(const char* name) {
  static void* const library = [] {
    const char* const named = std::getenv("SHUNT_CUDA_LIBRARY");
    return ::dlopen(named != nullptr && *named != '\0' ? named : "libcuda.so.1", RTLD_NOW);
  }();
  SHUNT_CHECK(library != nullptr);
  void* const function = ::dlsym(library, name);
  if (function == nullptr) std::fprintf(stderr, "the CUDA driver has no %s\n", name);
  SHUNT_CHECK(function != nullptr);
  return function;
}

void CopyToDevice(DevicePtr to, const void* from, size_t bytes) {
  CALL(cuMemcpyHtoD, to, from, bytes);
  // From pageable memory it returns when the bytes are on their way.
  CALL(cuStreamSynchronize, nullptr);
}

void CopyFromDevice(void* to, DevicePtr from, size_t bytes) { CALL(cuMemcpyDtoH, to, from, bytes); }

DevicePtr AllocateManaged(size_t bytes) {
  CUdeviceptr pointer = 0;
  CALL(cuMemAllocManaged, &pointer, bytes, CU_MEM_ATTACH_GLOBAL);
  return pointer;
}

DevicePtr AllocateFromPool(size_t bytes, Stream stream) {
  CUdeviceptr pointer = 0;
  CALL(cuMemAllocAsync, &pointer, bytes, Raw(stream));
  CALL(cuStreamSynchronize, Raw(stream));
  return pointer;
}

void FreeToPool(DevicePtr pointer, Stream stream) { CALL(cuMemFreeAsync, pointer, Raw(stream)); }

void* AllocatePinnedHost(size_t bytes) {
  void* memory = nullptr;
  CALL(cuMemHostAlloc, &memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
  return memory;
}

void FreePinnedHost(void* memory) { CALL(cuMemFreeHost, memory); }

Unshareable AllocateUnshareable(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  size_t bytes = 0;
  CALL(cuMemGetAllocationGranularity, &bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  CUmemGenericAllocationHandle allocation = 0;
  CALL(cuMemCreate, &allocation, bytes, &properties, 0);
  CUdeviceptr address = 0;
  CALL(cuMemAddressReserve, &address, bytes, 0, 0, 0);
  CALL(cuMemMap, address, bytes, 0, allocation, 0);
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CALL(cuMemSetAccess, address, bytes, &access, 1);
  CALL(cuMemRelease, allocation);
  return {address, bytes};
}

void BeginCapture(Stream stream) {
  CALL(cuStreamBeginCapture, Raw(stream), CU_STREAM_CAPTURE_MODE_GLOBAL);
}

Graph EndCapture(Stream stream) {
  CUgraph graph = nullptr;
  using End = decltype(&::cuStreamEndCapture);
  const auto end = reinterpret_cast<End>(LibraryFunction(TEXT(cuStreamEndCapture)));
  return end(Raw(stream), &graph) == CUDA_SUCCESS ? reinterpret_cast<Graph>(graph) : nullptr;
}

GraphRun Instantiate(Graph graph) {
  CUgraphExec run = nullptr;
  CALL(cuGraphInstantiate, &run, reinterpret_cast<CUgraph>(graph), 0);
  return reinterpret_cast<GraphRun>(run);
}

void LaunchGraph(GraphRun run, Stream stream) {
  CALL(cuGraphLaunch, reinterpret_cast<CUgraphExec>(run), Raw(stream));
}

void DestroyGraph(Graph graph) { CALL(cuGraphDestroy, reinterpret_cast<CUgraph>(graph)); }

void DestroyGraphRun(GraphRun run) { CALL(cuGraphExecDestroy, reinterpret_cast<CUgraphExec>(run)); }

void WaitForEvent(Stream stream, Event event) {
  CALL(cuStreamWaitEvent, Raw(stream), reinterpret_cast<CUevent>(event), 0);
}

bool PrimaryContextExists(int device) {
  unsigned int flags = 0;
  int active = 0;
  CALL(cuDevicePrimaryCtxGetState, device, &flags, &active);
  return active != 0;
}

}  // namespace shunt::gpu::testing
