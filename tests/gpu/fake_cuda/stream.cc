#include "tests/gpu/fake_cuda/stream.h"

#include <cuda.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "tests/gpu/fake_cuda/memory.h"
#include "tests/gpu/fake_cuda/state.h"

namespace shunt::fake_cuda {
std::map<void*, std::shared_ptr<Stream>>& Streams() {
  static auto* const streams = new std::map<void*, std::shared_ptr<Stream>>;
  return *streams;
}

void Pause(uint64_t steps) {
  if (steps < 64) {
    ::sched_yield();
  } else {
    // A device's look over PCIe: the word may be stored by a process that knows of no waiter.
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

std::shared_ptr<Stream> Stream::Make(Context* context) {
  std::shared_ptr<Stream> stream(new Stream(context));
  std::thread([stream] { stream->Run(); }).detach();
  return stream;
}

void Stream::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !queue_.empty() || closed_; });
    if (queue_.empty()) return;
    const Work work = queue_.front();
    lock.unlock();
    uint64_t progress = 0;
    bool dropped = false;
    for (uint64_t steps = 0; !(dropped = Lost() != 0) && !work(&progress); ++steps) Pause(steps);
    lock.lock();
    if (dropped) {
      queue_.clear();
    } else {
      queue_.pop_front();
    }
    changed_.notify_all();
  }
}

void Stream::Push(Work work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

bool Stream::Idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

void Stream::WaitUntilIdle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty(); });
}

void Stream::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::shared_ptr<Stream> FindStream(void* raw) {
  const std::lock_guard lock(Lock());
  if (reinterpret_cast<uintptr_t>(raw) <= 2) {
    return Current() == nullptr ? nullptr : Current()->default_stream;
  }
  const auto found = Streams().find(raw);
  return found == Streams().end() ? nullptr : found->second;
}

int Submit(const std::shared_ptr<Stream>& stream, Work work) {
  {
    const std::lock_guard lock(Lock());
    if (stream->capture != nullptr) {
      if (stream->capture->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      stream->last = {AddNode(stream->capture->graph, std::move(work), stream->last)};
      return CUDA_SUCCESS;
    }
  }
  stream->Push(std::move(work));
  return CUDA_SUCCESS;
}

void SynchronizeAll() {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const std::lock_guard lock(Lock());
    for (const auto& [handle, stream] : Streams()) all.push_back(stream);
    for (const Device& device : Devices()) {
      if (device.context.default_stream != nullptr) all.push_back(device.context.default_stream);
    }
  }
  for (const auto& stream : all) stream->WaitUntilIdle();
}

namespace {

// Refused to a stream that is being captured, whose capture fails.
bool BreakCaptureOf(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(Lock());
  if (stream->capture == nullptr) return false;
  stream->capture->broken = true;
  return true;
}

uint32_t Load(uint64_t address) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(address))
      .load(std::memory_order_acquire);
}

void Store(uint64_t address, uint32_t value) {
  std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(address))
      .store(value, std::memory_order_release);
}

struct MemoryOp {
  bool write = false;
  unsigned flags = 0;
  uint64_t address = 0;
  uint32_t value = 0;

  bool Met() const {
    const uint32_t seen = Load(address);
    switch (flags & 3) {
      case CU_STREAM_WAIT_VALUE_GEQ:
        return static_cast<int32_t>(seen - value) >= 0;
      case CU_STREAM_WAIT_VALUE_EQ:
        return seen == value;
      case CU_STREAM_WAIT_VALUE_AND:
        return (seen & value) != 0;
      default:
        return ~(seen | value) != 0;
    }
  }
};

CUresult SubmitOps(CUstream raw, std::vector<MemoryOp> ops) {
  const std::shared_ptr<Stream> stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (ops.empty() || ops.size() > 256) return CUDA_ERROR_INVALID_VALUE;
  for (const MemoryOp& op : ops) {
    if (op.address % 4 != 0 || !Reachable(op.address, 4)) return CUDA_ERROR_INVALID_VALUE;
  }
  return static_cast<CUresult>(Submit(stream, [ops = std::move(ops)](uint64_t* next) {
    for (; *next < ops.size(); ++*next) {
      const MemoryOp& op = ops[*next];
      if (!Reachable(op.address, 4)) {  // freed since it was enqueued
        Lose(CUDA_ERROR_ILLEGAL_ADDRESS);
        return true;
      }
      if (op.write) {
        Store(op.address, op.value);
      } else if (!op.Met()) {
        return false;
      }
    }
    return true;
  }));
}

CUresult SubmitCopy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes, CUstream raw) {
  const std::shared_ptr<Stream> stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return static_cast<CUresult>(Submit(stream, [to, from, bytes](uint64_t*) {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return true;
  }));
}

CUresult Await(const std::shared_ptr<Stream>& stream) {
  stream->WaitUntilIdle();
  return static_cast<CUresult>(Lost());
}

CUresult CopyNow(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  if (const CUresult result = SubmitCopy(to, from, bytes, nullptr); result != CUDA_SUCCESS) {
    return result;
  }
  return Await(FindStream(nullptr));
}

}  // namespace
}  // namespace shunt::fake_cuda

using namespace shunt::fake_cuda;

CUresult cuStreamCreate(CUstream* stream, unsigned int /*flags*/) {
  FAKE_ENTER(cuStreamCreate, kContext);
  const std::shared_ptr<Stream> made = Stream::Make(Current());
  const std::lock_guard lock(Lock());
  Streams()[made.get()] = made;
  *stream = reinterpret_cast<CUstream>(made.get());
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream raw) {
  FAKE_ENTER(cuStreamDestroy, kInit);
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(Lock());
    const auto found = Streams().find(raw);
    if (found == Streams().end()) return CUDA_ERROR_INVALID_HANDLE;
    stream = std::move(found->second);
    Streams().erase(found);
  }
  stream->Close();  // what it holds still runs
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream raw) {
  FAKE_ENTER(cuStreamSynchronize, kContext);
  const std::shared_ptr<Stream> stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return BreakCaptureOf(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : Await(stream);
}

CUresult cuStreamQuery(CUstream raw) {
  FAKE_ENTER(cuStreamQuery, kContext);
  const std::shared_ptr<Stream> stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (BreakCaptureOf(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return stream->Idle() ? static_cast<CUresult>(Lost()) : CUDA_ERROR_NOT_READY;
}

CUresult cuCtxSynchronize() {
  FAKE_ENTER(cuCtxSynchronize, kUncaptured);
  SynchronizeAll();
  return static_cast<CUresult>(Lost());
}

CUresult cuStreamGetCtx(CUstream raw, CUcontext* context) {
  FAKE_ENTER(cuStreamGetCtx, kLive);
  const std::shared_ptr<Stream> stream = FindStream(raw);
  if (stream == nullptr)
    return raw == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
  *context = reinterpret_cast<CUcontext>(stream->context());
  return CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp(CUstream raw, unsigned int count, CUstreamBatchMemOpParams* params,
                            unsigned int /*flags*/) {
  FAKE_ENTER(cuStreamBatchMemOp, kContext);
  std::vector<MemoryOp> ops;
  for (unsigned int i = 0; i < count; ++i) {
    if (params[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
      ops.push_back({true, 0, params[i].writeValue.address, params[i].writeValue.value});
    } else if (params[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32) {
      ops.push_back({false, params[i].waitValue.flags, params[i].waitValue.address,
                     params[i].waitValue.value});
    } else {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return SubmitOps(raw, std::move(ops));
}

CUresult cuStreamWriteValue32(CUstream raw, CUdeviceptr address, cuuint32_t value,
                              unsigned int /*flags*/) {
  FAKE_ENTER(cuStreamWriteValue32, kContext);
  return SubmitOps(raw, {{true, 0, address, value}});
}

CUresult cuStreamWaitValue32(CUstream raw, CUdeviceptr address, cuuint32_t value,
                             unsigned int flags) {
  FAKE_ENTER(cuStreamWaitValue32, kContext);
  return SubmitOps(raw, {{false, flags, address, value}});
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream raw) {
  FAKE_ENTER(cuMemcpyAsync, kContext);
  return SubmitCopy(to, from, bytes, raw);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream raw) {
  FAKE_ENTER(cuMemcpyDtoDAsync, kContext);
  return SubmitCopy(to, from, bytes, raw);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream raw) {
  FAKE_ENTER(cuMemcpyHtoDAsync, kContext);
  return SubmitCopy(to, reinterpret_cast<CUdeviceptr>(from), bytes, raw);
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream raw) {
  FAKE_ENTER(cuMemcpyDtoHAsync, kContext);
  return SubmitCopy(reinterpret_cast<CUdeviceptr>(to), from, bytes, raw);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  FAKE_ENTER(cuMemcpy, kUncaptured);
  return CopyNow(to, from, bytes);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  FAKE_ENTER(cuMemcpyHtoD, kUncaptured);
  return CopyNow(to, reinterpret_cast<CUdeviceptr>(from), bytes);
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  FAKE_ENTER(cuMemcpyDtoH, kUncaptured);
  return CopyNow(reinterpret_cast<CUdeviceptr>(to), from, bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream raw) {
  FAKE_ENTER(cuMemsetD8Async, kContext);
  const std::shared_ptr<Stream> stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!Reachable(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return static_cast<CUresult>(Submit(stream, [to, value, bytes](uint64_t*) {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return true;
  }));
}

CUresult cuLaunchHostFunc(CUstream raw, CUhostFn function, void* argument) {
  FAKE_ENTER(cuLaunchHostFunc, kContext);
  const std::shared_ptr<Stream> stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return static_cast<CUresult>(Submit(stream, [function, argument](uint64_t*) {
    function(argument);
    return true;
  }));
}
