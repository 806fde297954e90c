// What a shunt_op stands for: one asynchronous call, or all the calls of a group.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/communicator.h"
#include "runtime/core/fd.h"

namespace shunt::client {

// Belongs to one thread at a time. Keeps its communicator.
class AsyncOperation {
 public:
  explicit AsyncOperation(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}
  // Waits for what has not ended.
  ~AsyncOperation();
  AsyncOperation(const AsyncOperation&) = delete;
  AsyncOperation& operator=(const AsyncOperation&) = delete;

  // Posts one more call. A failure leaves the ones before it in flight.
  absl::Status Start(const board::Call& call, bool served);
  // The same for calls on streams, as one.
  absl::Status StartOnStreams(std::span<cuda::StreamCalls::Request> requests);
  // True when all have ended; outcome() is then set. Never blocks.
  bool Poll();
  // The same, after waiting until `deadline_ns` (CLOCK_MONOTONIC) at most.
  bool Wait(int64_t deadline_ns);
  // The first operation that has not ended, and whom it waits for.
  std::string PendingText() const;
  // The first failure among the calls, in their order.
  const absl::Status& outcome() const { return outcome_; }

  // See shunt_op_fd.
  absl::StatusOr<int> EventFd();

  Communicator& communicator() { return *communicator_; }

 private:
  struct Part {
    std::shared_ptr<board::Operation> operation;  // null when it has ended
    absl::Status outcome;
    std::optional<cuda::Gates::Gate> gate = {};  // of a call on a stream
  };

  void Ended(Part& part);
  // Asks for a signal at the end of the first part that has not ended.
  absl::Status WatchNext();
  bool Finish();

  const std::shared_ptr<Communicator> communicator_;
  std::vector<Part> parts_;
  size_t first_open_ = 0;  // all before it have ended
  absl::Status outcome_;
  bool done_ = false;
  UniqueFd event_;
  size_t watched_ = SIZE_MAX;  // the part whose end signals event_
};

}  // namespace shunt::client
