// The C interface's groups and handles.
#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/deadline.h"
#include "client/src/error.h"
#include "client/src/group.h"
#include "client/src/handles.h"

using shunt::client::Fail;
using shunt::client::Guarded;
using shunt::client::Result;

namespace {

absl::Status CheckComm(const shunt_comm* comm) {
  if (comm == nullptr) return absl::InvalidArgumentError("comm is null");
  return comm->impl->session().CheckProcess();
}

absl::Status CheckOp(shunt_op* op) {
  if (op == nullptr) return absl::InvalidArgumentError("op is null");
  return op->impl.communicator().session().CheckProcess();
}

// A group of which `streams` calls are on streams: all, or it is refused.
int EndOnStreams(shunt_comm* comm, const shunt::client::Group& group, std::ptrdiff_t streams,
                 shunt_op** op) {
  if (streams != std::ssize(group.entries())) {
    return Fail(absl::StatusCode::kInvalidArgument,
                absl::StrCat("nothing of the group was submitted: ", streams, " of its ",
                             group.entries().size(),
                             " calls are on streams, expected all of them or none"));
  }
  std::vector<shunt::client::cuda::StreamCalls::Request> requests;
  for (const auto& entry : group.entries()) {
    requests.push_back({entry.call, static_cast<shunt::gpu::Stream>(*entry.stream), entry.device});
    requests.back().call.deadline_ns = shunt::client::DeadlineNs(entry.timeout_ns);
  }
  if (op == nullptr) return Result(comm->impl->streams().Start(requests, nullptr));
  auto handle = std::make_unique<shunt_op>(comm->impl);
  const absl::Status started = handle->impl.StartOnStreams(requests);
  if (!started.ok()) return Fail(started);
  *op = handle.release();
  return SHUNT_OK;
}

}  // namespace

extern "C" {

int shunt_group_begin(shunt_comm* comm) {
  return Guarded([&] {
    absl::Status status = CheckComm(comm);
    if (status.ok()) status = comm->impl->BeginGroup();
    return Result(status);
  });
}

int shunt_group_end(shunt_comm* comm, shunt_op** op) {
  return Guarded([&]() -> int {
    if (op != nullptr) *op = nullptr;
    if (absl::Status s = CheckComm(comm); !s.ok()) return Fail(s);
    const std::unique_ptr<shunt::client::Group> group = comm->impl->TakeGroup();
    if (group == nullptr) {
      return Fail(absl::StatusCode::kFailedPrecondition,
                  "this thread has no group open on this communicator");
    }
    if (!group->refused().ok()) {
      return Fail(
          absl::Status(group->refused().code(),
                       absl::StrCat("nothing of the group was submitted, because a call in it was "
                                    "refused: ",
                                    group->refused().message())));
    }
    const auto on_stream = [](const auto& entry) { return entry.stream.has_value(); };
    const auto streams = std::count_if(group->entries().begin(), group->entries().end(), on_stream);
    if (streams != 0) return EndOnStreams(comm, *group, streams, op);
    auto handle = std::make_unique<shunt_op>(comm->impl);
    absl::Status started;
    for (const auto& entry : group->entries()) {
      shunt::board::Call call = entry.call;
      call.deadline_ns = shunt::client::DeadlineNs(entry.timeout_ns);
      // Without a handle this thread sees the group through itself.
      started = handle->impl.Start(call, /*served=*/op != nullptr);
      if (!started.ok()) break;
    }
    if (started.ok() && op != nullptr) {
      *op = handle.release();
      return SHUNT_OK;
    }
    handle->impl.Wait(shunt::kNeverNs);
    // What went wrong first explains what could not be started after it.
    started.Update(handle->impl.outcome());
    return Result(handle->impl.outcome().ok() ? started : handle->impl.outcome());
  });
}

int shunt_sync(shunt_comm* comm, int64_t timeout_ns) {
  return Guarded([&]() -> int {
    if (absl::Status s = CheckComm(comm); !s.ok()) return Fail(s);
    if (timeout_ns < 0) {
      return Fail(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("timeout_ns is ", timeout_ns, ", expected 0 or more"));
    }
    if (!comm->impl->device()) return SHUNT_OK;
    if (timeout_ns == 0) timeout_ns = comm->impl->default_timeout_ns();
    return Result(comm->impl->streams().Sync(shunt::client::DeadlineNs(timeout_ns)));
  });
}

int shunt_op_poll(shunt_op* op, int* done) {
  return Guarded([&]() -> int {
    if (done == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "done is null");
    *done = 0;
    if (absl::Status s = CheckOp(op); !s.ok()) return Fail(s);
    if (!op->impl.Poll()) return SHUNT_OK;
    *done = 1;
    return Result(op->impl.outcome());
  });
}

int shunt_op_wait(shunt_op* op, int64_t timeout_ns) {
  return Guarded([&]() -> int {
    if (absl::Status s = CheckOp(op); !s.ok()) return Fail(s);
    if (timeout_ns < 0) {
      return Fail(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("timeout_ns is ", timeout_ns, ", expected 0 or more"));
    }
    if (timeout_ns == 0) timeout_ns = op->impl.communicator().default_timeout_ns();
    if (!op->impl.Wait(shunt::client::DeadlineNs(timeout_ns))) {
      return Fail(absl::StatusCode::kDeadlineExceeded,
                  absl::StrCat(op->impl.PendingText(), "; it is still running"));
    }
    return Result(op->impl.outcome());
  });
}

int shunt_op_fd(shunt_op* op, int* fd) {
  return Guarded([&]() -> int {
    if (fd == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "fd is null");
    *fd = -1;
    if (absl::Status s = CheckOp(op); !s.ok()) return Fail(s);
    absl::StatusOr<int> event = op->impl.EventFd();
    if (!event.ok()) return Fail(event.status());
    *fd = *event;
    return SHUNT_OK;
  });
}

void shunt_op_release(shunt_op* op) {
  Guarded([&] {
    delete op;
    return 0;
  });
}

}  // extern "C"
