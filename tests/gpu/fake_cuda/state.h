// What all parts of the fake share: devices, contexts, the thread's current one, failures.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace shunt::fake_cuda {

class Stream;

inline constexpr uint64_t kGranularity = 2 << 20;  // of cuMemCreate

struct Context {
  int device = 0;  // as this process counts
  int retained = 0;
  std::shared_ptr<Stream> default_stream;
};

struct Device {
  int physical = 0;  // as the machine counts
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;  // by this process
  Context context;          // the primary one
};

// What a function needs before it does anything.
enum Need : unsigned {
  kAnything = 0,     // also of a process that has not called cuInit
  kInit = 1,         // cuInit
  kLive = 2,         // and contexts that are not lost
  kContext = 4,      // and a current one
  kUncaptured = 12,  // and no capture that forbids it (as it would for cudaMalloc)
};

// Guards all tables of all parts. Never held while a user's function runs.
std::mutex& Lock();

// Counts the call; the code that it must answer at once, or 0. Takes Lock().
int Enter(const char* function, unsigned need);

// 0, or the code of a lost context. Looks at the control file too.
int Lost();
void Lose(int code);

int Init();
int Version();
// With Lock() held.
std::vector<Device>& Devices();
Context* Current();  // of this thread, or null
std::vector<Context*>& CurrentStack();
// False: there is not so much left.
bool Charge(int device, uint64_t bytes);
void Refund(int device, uint64_t bytes);
uint64_t NextId();

// Of stream.cc: a capture is under way that forbids unsafe calls in this thread; it has failed now.
bool BreakCapture();

}  // namespace shunt::fake_cuda

// CUresult cuX(...) { FAKE_ENTER(cuX, kContext); ... }
#define FAKE_ENTER(function, need)                                              \
  do {                                                                          \
    if (const int code = ::shunt::fake_cuda::Enter(#function, need); code != 0) \
      return static_cast<CUresult>(code);                                       \
  } while (false)
