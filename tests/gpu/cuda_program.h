// What a user's own CUDA program does, for tests: the calls that Shunt never makes. They go to the
// driver that Shunt's adapter loads. A failure ends the test.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/gpu/driver.h"

namespace shunt::gpu::testing {

struct GraphRunTag;
using GraphRun = GraphRunTag*;  // CUgraphExec

void CopyToDevice(DevicePtr to, const void* from, size_t bytes);
void CopyFromDevice(void* to, DevicePtr from, size_t bytes);

// Memory that Shunt's adapter does not make.
DevicePtr AllocateManaged(size_t bytes);
DevicePtr AllocateFromPool(size_t bytes, Stream stream);
void FreeToPool(DevicePtr pointer, Stream stream);
void* AllocatePinnedHost(size_t bytes);
void FreePinnedHost(void* memory);
// cuMemCreate's, mapped and accessible, that was not asked for as a descriptor. FreeVmm frees it.
struct Unshareable {
  DevicePtr address;
  uint64_t bytes;
};
Unshareable AllocateUnshareable(int device);

// Capture with cudaStreamCaptureModeGlobal.
void BeginCapture(Stream stream);
Graph EndCapture(Stream stream);  // null if the capture failed
GraphRun Instantiate(Graph graph);
void LaunchGraph(GraphRun run, Stream stream);
void DestroyGraph(Graph graph);
void DestroyGraphRun(GraphRun run);
// What `stream` does next comes after `event`, in a capture too.
void WaitForEvent(Stream stream, Event event);

bool PrimaryContextExists(int device);

// A function of the loaded library by its exact name, as of the fake's (fake_cuda.h).
void* LibraryFunction(const char* name);

}  // namespace shunt::gpu::testing
