#include "client/src/operation.h"

#include <new>
#include <utility>

#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client {

AsyncOperation::~AsyncOperation() {
  if (communicator_->session().InForkedChild()) {
    // The board is not mapped here: what the parts hold must not be touched, so they are leaked.
    new (std::nothrow) std::vector<Part>(std::move(parts_));
    return;
  }
  Wait(kNeverNs);
}

absl::Status AsyncOperation::Start(const board::Call& call, bool served) {
  communicator_->BeginOperation();
  auto operation = communicator_->member().Start(call, served);
  if (!operation.ok()) {
    communicator_->EndOperation();
    return operation.status();
  }
  parts_.push_back({*std::move(operation), absl::OkStatus()});
  return absl::OkStatus();
}

absl::Status AsyncOperation::StartOnStreams(std::span<cuda::StreamCalls::Request> requests) {
  std::vector<cuda::StreamCalls::Part> parts;
  absl::Status started = communicator_->streams().Start(requests, &parts);
  for (cuda::StreamCalls::Part& part : parts) {
    parts_.push_back({std::move(part.operation), absl::OkStatus(), part.gate});
  }
  return started;
}

void AsyncOperation::Ended(Part& part) {
  if (part.gate) communicator_->streams().Ended(*part.gate, part.outcome.ok());
  part.operation.reset();
  communicator_->EndOperation();
}

bool AsyncOperation::Finish() {
  while (first_open_ < parts_.size() && parts_[first_open_].operation == nullptr) {
    outcome_.Update(parts_[first_open_].outcome);
    ++first_open_;
  }
  done_ = first_open_ == parts_.size();
  return done_;
}

bool AsyncOperation::Poll() {
  if (done_) return true;
  for (size_t i = first_open_; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.operation != nullptr && communicator_->member().Poll(*part.operation, &part.outcome)) {
      Ended(part);
    }
  }
  if (Finish()) {
    if (event_.valid()) SignalEventFd(event_.get());  // the daemon may hear of it later
    return true;
  }
  // The descriptor may have told of one part's end.
  if (event_.valid() && watched_ < first_open_) {
    DrainEventFd(event_.get());
    // Without a watch it would never become readable again: readable too often is the lesser evil.
    if (!WatchNext().ok()) SignalEventFd(event_.get());
  }
  return done_;
}

bool AsyncOperation::Wait(int64_t deadline_ns) {
  if (done_) return true;
  // While one is waited for, the engine moves the others too.
  for (size_t i = first_open_; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.operation == nullptr) continue;
    if (!communicator_->member().Wait(*part.operation, deadline_ns, &part.outcome)) break;
    Ended(part);
  }
  return Finish();
}

std::string AsyncOperation::PendingText() const {
  for (const Part& part : parts_) {
    if (part.operation != nullptr) return board::Member::PendingText(*part.operation);
  }
  return "";
}

absl::Status AsyncOperation::WatchNext() {
  // Signalled by hand when there is nothing left to watch.
  while (!done_) {
    uint32_t channel;
    uint64_t sequence;
    if (!board::Member::ServedBy(*parts_[first_open_].operation, &channel, &sequence)) {
      return absl::FailedPreconditionError(
          "an operation on memory outside regions has no descriptor: it moves only in "
          "shunt_op_poll and "
          "shunt_op_wait");
    }
    SHUNT_RETURN_IF_ERROR(communicator_->Watch(channel, sequence, event_.get()));
    watched_ = first_open_;
    // It may have ended before the daemon heard of the watch.
    Part& part = parts_[first_open_];
    if (!communicator_->member().Poll(*part.operation, &part.outcome)) return absl::OkStatus();
    Ended(part);
    Finish();
  }
  SignalEventFd(event_.get());
  return absl::OkStatus();
}

absl::StatusOr<int> AsyncOperation::EventFd() {
  if (event_.valid()) return event_.get();
  Poll();
  SHUNT_ASSIGN_OR_RETURN(event_, MakeEventFd());
  if (absl::Status watched = WatchNext(); !watched.ok()) {
    event_.Reset();
    return watched;
  }
  return event_.get();
}

}  // namespace shunt::client
