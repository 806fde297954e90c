#include "tests/gpu/fake_cuda/state.h"

#include <cuda.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/gpu/fake_cuda/fake_cuda.h"

namespace shunt::fake_cuda {
namespace {

struct Failure {
  uint64_t at = 0;  // the count of calls; 0: always
  int code = 0;
};

struct State {
  std::mutex mutex;
  pid_t pid = 0;  // that called cuInit
  std::vector<Device> devices;
  std::map<std::string, uint64_t> calls;
  std::map<std::string, Failure> failures;
  uint64_t last_id = 0;
  std::string control_path;
  std::mutex control_mutex;
  struct stat control {};  // of the file as last read
};

// Never destroyed: streams' threads run until the process is gone.
State& Global() {
  static State* const state = new State;
  return *state;
}

std::atomic<int> lost{0};

uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 0);
}

bool Same(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec && a.st_size == b.st_size;
}

void Fail(State& state, const std::string& function, uint64_t nth, int code) {
  const std::lock_guard lock(state.mutex);
  state.failures[function] = {nth == 0 ? 0 : state.calls[function] + nth, code};
}

// Obeys the control file if it is another than the one seen last.
void LookAtControl(State& state, bool first) {
  if (state.control_path.empty()) return;
  const std::lock_guard lock(state.control_mutex);
  struct stat now {};
  if (::stat(state.control_path.c_str(), &now) != 0 || (!first && Same(now, state.control))) return;
  state.control = now;
  std::ifstream file(state.control_path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string verb, function;
    uint64_t nth = 0;
    int code = 0;
    if (!(words >> verb)) continue;
    if (verb == "fail" && words >> function >> nth >> code) {
      Fail(state, function, nth, code);
    } else if (verb == "lose" && words >> code) {
      if (!first) Lose(code);
    } else {
      std::fprintf(stderr, "fake_cuda: %s: cannot read \"%s\"\n", state.control_path.c_str(),
                   line.c_str());
      std::abort();
    }
  }
}

// The devices that $CUDA_VISIBLE_DEVICES lets through, in its order.
std::vector<int> Visible(int count) {
  std::vector<int> visible;
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < count; ++i) visible.push_back(i);
    return visible;
  }
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    // The last byte of the UUID is the device; see cuDeviceGetUuid.
    const int index =
        entry.rfind("GPU-", 0) == 0 && entry.size() >= 6
            ? static_cast<int>(std::strtol(entry.c_str() + entry.size() - 2, nullptr, 16))
            : std::atoi(entry.c_str());
    if (entry.empty() || index < 0 || index >= count) break;  // as the real one: the rest is lost
    visible.push_back(index);
  }
  return visible;
}

}  // namespace

std::mutex& Lock() { return Global().mutex; }

int Version() { return static_cast<int>(NumberFrom("SHUNT_FAKE_CUDA_VERSION", CUDA_VERSION)); }

int Init() {
  State& state = Global();
  {
    const std::lock_guard lock(state.mutex);
    if (state.pid == ::getpid()) return CUDA_SUCCESS;
    if (state.pid != 0) return CUDA_ERROR_NOT_INITIALIZED;  // a child of fork()
    const uint64_t memory = NumberFrom("SHUNT_FAKE_CUDA_MEMORY", 16ull << 30);
    const auto visible = Visible(static_cast<int>(NumberFrom("SHUNT_FAKE_CUDA_DEVICES", 1)));
    if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
    // Never grows again: contexts are named by address.
    state.devices.resize(visible.size());
    for (size_t i = 0; i < visible.size(); ++i) {
      state.devices[i].physical = visible[i];
      state.devices[i].total_bytes = memory;
      state.devices[i].context.device = static_cast<int>(i);
    }
    if (const char* const path = std::getenv("SHUNT_FAKE_CUDA_CONTROL")) state.control_path = path;
    state.pid = ::getpid();
  }
  LookAtControl(state, true);
  return CUDA_SUCCESS;
}

std::vector<Device>& Devices() { return Global().devices; }

std::vector<Context*>& CurrentStack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

Context* Current() {
  const std::vector<Context*>& stack = CurrentStack();
  return stack.empty() ? nullptr : stack.back();
}

int Lost() {
  State& state = Global();
  LookAtControl(state, false);
  return lost.load(std::memory_order_acquire);
}

void Lose(int code) { lost.store(code, std::memory_order_release); }

bool Charge(int device, uint64_t bytes) {
  Device& charged = Devices()[static_cast<size_t>(device)];
  if (bytes > charged.total_bytes - charged.used_bytes) return false;
  charged.used_bytes += bytes;
  return true;
}

void Refund(int device, uint64_t bytes) {
  Devices()[static_cast<size_t>(device)].used_bytes -= bytes;
}

uint64_t NextId() { return ++Global().last_id; }

int Enter(const char* function, unsigned need) {
  State& state = Global();
  bool uncaptured = false;
  {
    const int gone = need >= kInit ? Lost() : 0;
    const std::lock_guard lock(state.mutex);
    const uint64_t count = ++state.calls[function];
    if (need >= kInit && state.pid != ::getpid()) return CUDA_ERROR_NOT_INITIALIZED;
    if (const auto failure = state.failures.find(function); failure != state.failures.end()) {
      const Failure found = failure->second;
      if (found.at == 0) return found.code;
      if (found.at == count) {
        state.failures.erase(failure);
        return found.code;
      }
    }
    if (need >= kLive && gone != 0) return gone;
    if (need >= kContext && Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    uncaptured = (need & kUncaptured) == kUncaptured;
  }
  return uncaptured && BreakCapture() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

}  // namespace shunt::fake_cuda

void shunt_fake_cuda_fail(const char* function, uint64_t nth, int code) {
  shunt::fake_cuda::Fail(shunt::fake_cuda::Global(), function, nth, code);
}

void shunt_fake_cuda_lose(int code) { shunt::fake_cuda::Lose(code); }

uint64_t shunt_fake_cuda_calls(const char* function) {
  const std::lock_guard lock(shunt::fake_cuda::Lock());
  return shunt::fake_cuda::Global().calls[function];
}
