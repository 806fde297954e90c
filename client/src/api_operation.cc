// The C interface's groups and handles.
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
