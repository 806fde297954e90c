// A communicator's calls on CUDA streams: each posts as any other, and has the caller's stream
// write a trigger and wait for a done word (docs/gpu.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/cuda/gates.h"
#include "client/src/cuda/watcher.h"
#include "runtime/board/member.h"
#include "runtime/gpu/driver.h"

namespace shunt::client {

class Communicator;

namespace cuda {

// Thread-safe. Owned by its communicator.
class StreamCalls {
 public:
  explicit StreamCalls(Communicator* communicator) : communicator_(communicator) {}
  ~StreamCalls();
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  struct Request {
    board::Call call;
    gpu::Stream stream = nullptr;
    int device = -1;  // of its buffers; -1: it has none there
  };
  // An operation in flight, and the gate that its stream passes.
  struct Part {
    std::shared_ptr<board::Operation> operation;
    Gates::Gate gate;
  };

  // Posts the calls, then has their streams trigger all of them before any is waited for. What
  // fails ends the communicator, unless nothing has been posted. With `parts` they are the
  // caller's, who says Ended of each; else they are reaped here.
  absl::Status Start(std::span<Request> requests, std::vector<Part>* parts);

  // Ends what has ended.
  void Reap();
  // Of a part of the caller's.
  void Ended(const Gates::Gate& gate, bool ok);
  // Waits for all that is reaped here, until `deadline_ns` (CLOCK_MONOTONIC) at most. The first
  // failure since the communicator was joined.
  absl::Status Sync(int64_t deadline_ns);
  // Lets the streams of all calls pass.
  void Release();
  // Ends what has ended, and what is over on its stream: the daemon's word for that comes at once,
  // so it is waited for.
  void Settle();
  // The communicator has been left.
  void AfterLeave();

 private:
  struct Prepared {
    Part part;  // without an operation: captured
    gpu::Stream stream = nullptr;
  };

  // The session's watcher, and the driver; made on the first call.
  absl::Status Open();
  absl::Status CheckStream(const Request& request);
  absl::StatusOr<Prepared> Post(const Request& request);
  absl::StatusOr<Prepared> Capture(const Request& request, const gpu::CaptureFacts& capture);
  absl::Status Enqueue(std::span<const Prepared> prepared);
  void Keep(std::span<const Prepared> prepared, std::vector<Part>* parts);
  // With list_mutex_ held: true if the operation had ended.
  bool ReapOne(const Part& part);

  Communicator* const communicator_;

  // From the post to the last word on the stream: two calls are in one order in both.
  std::mutex start_mutex_;
  gpu::Driver* driver_ = nullptr;
  std::shared_ptr<Watcher> watcher_;
  std::atomic<Watcher*> opened_{nullptr};  // the same, for who must not wait for the mutex
  std::shared_ptr<Watcher::Watched> watched_;
  std::vector<Prepared> prepared_;
  std::vector<gpu::MemoryOp> ops_;
  gpu::Context context_ = nullptr;  // the last stream's, and its device
  int context_device_ = -1;
  uint64_t captured_ = 0;

  std::mutex list_mutex_;
  std::deque<Part> in_flight_;
  std::vector<Gates::Gate> spent_;  // of calls that have failed
  absl::Status failure_;
};

}  // namespace cuda
}  // namespace shunt::client
