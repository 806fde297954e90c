// Events, and the capture of streams into graphs.
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <map>
#include <utility>

#include "tests/gpu/fake_cuda/state.h"
#include "tests/gpu/fake_cuda/stream.h"

namespace shunt::fake_cuda {

namespace {
thread_local CUstreamCaptureMode mode_of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;
}  // namespace

bool BreakCapture() {
  if (mode_of_thread == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  const std::lock_guard lock(Lock());
  bool broken = false;
  for (const auto& [handle, stream] : Streams()) {
    const auto& capture = stream->capture;
    if (capture == nullptr || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    if (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        capture->begun != std::this_thread::get_id()) {
      continue;
    }
    capture->broken = true;
    broken = true;
  }
  return broken;
}

}  // namespace shunt::fake_cuda

using namespace shunt::fake_cuda;

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  FAKE_ENTER(cuThreadExchangeStreamCaptureMode, kInit);
  std::swap(*mode, mode_of_thread);
  return CUDA_SUCCESS;
}

// ---- Events

namespace {

struct EventState {
  std::atomic<uint64_t> recorded{0};
  std::atomic<uint64_t> done{0};
  std::atomic<int64_t> when_ns{0};
  // Recorded in a capture: what work that waits for it comes after. With Lock() held.
  std::shared_ptr<Capture> capture;
  std::vector<Node*> nodes;
};

std::map<void*, std::shared_ptr<EventState>>& Events() {
  static auto* const events = new std::map<void*, std::shared_ptr<EventState>>;
  return *events;
}

std::shared_ptr<EventState> FindEvent(void* raw) {
  const std::lock_guard lock(Lock());
  const auto found = Events().find(raw);
  return found == Events().end() ? nullptr : found->second;
}

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

CUresult ElapsedTime(float* milliseconds, CUevent begin_raw, CUevent end_raw) {
  const auto begin = FindEvent(begin_raw), end = FindEvent(end_raw);
  if (begin == nullptr || end == nullptr || begin->recorded == 0 || end->recorded == 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (begin->done != begin->recorded || end->done != end->recorded) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(end->when_ns - begin->when_ns) / 1e6f;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuEventCreate(CUevent* event, unsigned int /*flags*/) {
  FAKE_ENTER(cuEventCreate, kContext);
  auto made = std::make_shared<EventState>();
  const std::lock_guard lock(Lock());
  *event = reinterpret_cast<CUevent>(made.get());
  Events()[made.get()] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  FAKE_ENTER(cuEventDestroy, kInit);
  const std::lock_guard lock(Lock());
  return Events().erase(event) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent raw_event, CUstream raw) {
  FAKE_ENTER(cuEventRecord, kContext);
  const auto event = FindEvent(raw_event);
  const auto stream = FindStream(raw);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t number = 0;
  {
    const std::lock_guard lock(Lock());
    event->capture = stream->capture;
    event->nodes = stream->last;
    if (stream->capture != nullptr) {
      return stream->capture->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    }
    number = ++event->recorded;
  }
  stream->Push([event, number](uint64_t*) {
    event->when_ns = NowNs();
    event->done = number;
    return true;
  });
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent raw) {
  FAKE_ENTER(cuEventQuery, kUncaptured);
  const auto event = FindEvent(raw);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return event->done == event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent raw) {
  FAKE_ENTER(cuEventSynchronize, kUncaptured);
  const auto event = FindEvent(raw);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (uint64_t steps = 0; event->done != event->recorded && Lost() == 0; ++steps) Pause(steps);
  return static_cast<CUresult>(Lost());
}

CUresult cuStreamWaitEvent(CUstream raw, CUevent raw_event, unsigned int /*flags*/) {
  FAKE_ENTER(cuStreamWaitEvent, kContext);
  const auto event = FindEvent(raw_event);
  const auto stream = FindStream(raw);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  {
    const std::lock_guard lock(Lock());
    if (event->capture != nullptr) {
      if (stream->capture != nullptr && stream->capture != event->capture) {
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
      }
      stream->capture = event->capture;  // joins it
      stream->last.insert(stream->last.end(), event->nodes.begin(), event->nodes.end());
      return CUDA_SUCCESS;
    }
    if (stream->capture != nullptr && event->recorded > 0) {
      stream->capture->broken = true;
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
  }
  const uint64_t number = event->recorded;
  return static_cast<CUresult>(
      Submit(stream, [event, number](uint64_t*) { return event->done >= number; }));
}

// By name: the header's newest form is younger than some toolkits.
extern "C" CUresult FakeElapsedTime(float* milliseconds, CUevent begin,
                                    CUevent end) __asm__("cuEventElapsedTime");
CUresult FakeElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  FAKE_ENTER(cuEventElapsedTime, kContext);
  return ElapsedTime(milliseconds, begin, end);
}

// ---- Capture

CUresult cuStreamBeginCapture(CUstream raw, CUstreamCaptureMode mode) {
  FAKE_ENTER(cuStreamBeginCapture, kContext);
  const auto stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (reinterpret_cast<uintptr_t>(raw) <= 1) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(Lock());
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = NextId();
  capture->graph = MakeGraph();
  capture->origin = stream.get();
  capture->mode = mode;
  capture->begun = std::this_thread::get_id();
  stream->capture = std::move(capture);
  stream->last.clear();
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream raw, CUgraph* graph) {
  FAKE_ENTER(cuStreamEndCapture, kContext);
  *graph = nullptr;
  const auto stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(Lock());
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.get()) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  for (const auto& [handle, other] : Streams()) {
    if (other->capture != capture) continue;
    other->capture = nullptr;
    other->last.clear();
  }
  if (capture->broken) {
    DropGraph(capture->graph);
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *graph = reinterpret_cast<CUgraph>(capture->graph);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream raw, CUstreamCaptureStatus* state) {
  FAKE_ENTER(cuStreamIsCapturing, kContext);
  const auto stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(Lock());
  *state = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->broken  ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

extern "C" CUresult FakeCaptureInfo2(CUstream raw, CUstreamCaptureStatus* state, cuuint64_t* id,
                                     CUgraph* graph, const CUgraphNode** last,
                                     size_t* count) __asm__("cuStreamGetCaptureInfo_v2");
CUresult FakeCaptureInfo2(CUstream raw, CUstreamCaptureStatus* state, cuuint64_t* id,
                          CUgraph* graph, const CUgraphNode** last, size_t* count) {
  FAKE_ENTER(cuStreamGetCaptureInfo, kContext);
  const auto stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(Lock());
  const Capture* const capture = stream->capture.get();
  *state = capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
           : capture->broken  ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                              : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (*state != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(capture->graph);
  if (last != nullptr) *last = reinterpret_cast<const CUgraphNode*>(stream->last.data());
  if (count != nullptr) *count = stream->last.size();
  return CUDA_SUCCESS;
}

extern "C" CUresult FakeCaptureInfo3(CUstream raw, CUstreamCaptureStatus* state, cuuint64_t* id,
                                     CUgraph* graph, const CUgraphNode** last, const void** edges,
                                     size_t* count) __asm__("cuStreamGetCaptureInfo_v3");
CUresult FakeCaptureInfo3(CUstream raw, CUstreamCaptureStatus* state, cuuint64_t* id,
                          CUgraph* graph, const CUgraphNode** last, const void** edges,
                          size_t* count) {
  if (edges != nullptr && last == nullptr) return CUDA_ERROR_INVALID_VALUE;  // seen on a GPU
  if (edges != nullptr) *edges = nullptr;
  return FakeCaptureInfo2(raw, state, id, graph, last, count);
}
