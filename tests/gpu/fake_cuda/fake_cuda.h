// A CUDA driver without a GPU: libcuda.so.1 for tests, whose device memory is the host's. It runs
// what the real one would, in the real order: streams are threads, waits are ended by any store to
// their word, graphs run their branches side by side, memory crosses between processes. What comes
// out is right; how fast says nothing. $SHUNT_CUDA_LIBRARY of the tests' processes names it.
//
// Environment, read at cuInit:
//   SHUNT_FAKE_CUDA_DEVICES  number of GPUs; 1. 0: cuInit finds none
//   SHUNT_FAKE_CUDA_MEMORY   bytes of each; 16 GiB. Counted within one process
//   SHUNT_FAKE_CUDA_VERSION  of the driver; 13000
//   CUDA_VISIBLE_DEVICES     "1,0" or "GPU-<uuid>,...", as the real one
//   SHUNT_FAKE_CUDA_CONTROL  a file of lines, looked at in every call and, while it waits, by every
//                            stream; write it whole and rename() it into place:
//     fail FUNCTION N CODE   the N-th call of FUNCTION from when the line is seen (1: the next)
//                            answers CODE, a CUresult; N = 0: every one
//     lose CODE              the context is lost. For processes alone whose cuInit is older than
//                            the file, so that one started in a lost one's place lives
//
// Functions go by their names without _v2. Differences from a real one: the default streams are one
// stream more, without its implicit waits; all contexts of a process are lost together; any image
// is a module and has the kernels of runtime/gpu/kernels, which run their bodies on the CPU when it
// is their turn, whatever their shape.
#pragma once

#include <stdint.h>

extern "C" {

// As the lines of the control file, for this process.
void shunt_fake_cuda_fail(const char* function, uint64_t nth, int code);
// Work under way and enqueued is dropped; every later call that needs a context answers `code`.
void shunt_fake_cuda_lose(int code);
// How often a function was called in this process, failures included.
uint64_t shunt_fake_cuda_calls(const char* function);
}
