// The C interface's collective calls: check, and hand over to the board. The blocking path
// allocates nothing and costs some ten nanoseconds.
#include <cstring>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "client/src/call_check.h"
#include "client/src/cuda/call_memory.h"
#include "client/src/cuda/process.h"
#include "client/src/deadline.h"
#include "client/src/error.h"
#include "client/src/group.h"
#include "client/src/handles.h"
#include "client/src/options.h"
#include "runtime/core/status.h"

namespace shunt::client {
namespace {

// What the caller asked for besides the call itself.
struct Wishes {
  int64_t timeout_ns = 0;
  bool served = true;
  std::optional<void*> stream;
  int device = -1;  // of the buffers; -1: no GPU's
};

absl::Status ReadFlags(const shunt_call& options, const Communicator& c, Wishes* wishes) {
  constexpr uint32_t kKnown = SHUNT_CALL_ONLY_WHILE_WAITING | SHUNT_CALL_STREAM;
  if ((options.flags & ~kKnown) != 0 || options.flags == kKnown) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shunt_call.flags is ", options.flags, ", expected 0, ", SHUNT_CALL_ONLY_WHILE_WAITING,
        " (SHUNT_CALL_ONLY_WHILE_WAITING) or ", SHUNT_CALL_STREAM, " (SHUNT_CALL_STREAM)"));
  }
  wishes->served = (options.flags & SHUNT_CALL_ONLY_WHILE_WAITING) == 0;
  if ((options.flags & SHUNT_CALL_STREAM) == 0) {
    if (options.stream == nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "shunt_call.stream is set, but not SHUNT_CALL_STREAM in shunt_call.flags");
  }
  if (options.reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shunt_call.reserved is ", options.reserved, ", expected 0"));
  }
  if (!c.device()) {
    return absl::InvalidArgumentError(
        "a call on a stream, but the communicator was joined without SHUNT_JOIN_DEVICE "
        "(device=True in Python)");
  }
  wishes->stream = options.stream;
  return absl::OkStatus();
}

// The caller's options for one call.
absl::Status ReadCall(const shunt_call* given, const Communicator& c, board::Call* call,
                      Wishes* wishes) {
  const CollectiveSpec& spec = call->spec;
  shunt_call options;
  if (absl::Status s = ReadOptions("shunt_call", offsetof(shunt_call, flags), given, &options);
      !s.ok()) {
    return s;
  }
  SHUNT_RETURN_IF_ERROR(ReadFlags(options, c, wishes));
  if (options.timeout_ns < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shunt_call.timeout_ns is ", options.timeout_ns, ", expected 0 or more"));
  }
  if (options.timeout_ns != 0) wishes->timeout_ns = options.timeout_ns;
  if (Reduces(spec.kind) && spec.redop == Redop::kPremulSum) {
    if (options.scalar == nullptr) {
      return absl::InvalidArgumentError(
          "SHUNT_PREMUL_SUM without shunt_call.scalar, this rank's factor");
    }
    std::memcpy(call->scalar.bytes, options.scalar, SizeOf(spec.dtype));
  }
  return absl::OkStatus();
}

int SubmitOnStream(shunt_comm* comm, const board::Call& call, const Wishes& wishes, shunt_op** op) {
  cuda::StreamCalls::Request request{call, static_cast<gpu::Stream>(*wishes.stream), wishes.device};
  request.call.deadline_ns = DeadlineNs(wishes.timeout_ns);
  const std::span<cuda::StreamCalls::Request> requests(&request, 1);
  if (op == nullptr) return Result(comm->impl->streams().Start(requests, nullptr));
  auto handle = std::make_unique<shunt_op>(comm->impl);
  if (absl::Status started = handle->impl.StartOnStreams(requests); !started.ok())
    return Fail(started);
  *op = handle.release();
  return SHUNT_OK;
}

// Whatever is not a plain blocking call.
int SubmitElsewhere(shunt_comm* comm, Group* group, board::Call& call, const Wishes& wishes,
                    shunt_op** op) {
  Communicator& c = *comm->impl;
  if (group != nullptr) {
    if (op != nullptr) {
      return Fail(absl::StatusCode::kInvalidArgument,
                  "a call inside a group has no handle of its own: pass op to shunt_group_end");
    }
    group->Add({call, wishes.timeout_ns, wishes.stream, wishes.device}, c.world_size());
    return SHUNT_OK;
  }
  if (wishes.stream) return SubmitOnStream(comm, call, wishes, op);
  call.deadline_ns = DeadlineNs(wishes.timeout_ns);
  auto handle = std::make_unique<shunt_op>(comm->impl);
  if (absl::Status started = handle->impl.Start(call, wishes.served); !started.ok())
    return Fail(started);
  *op = handle.release();
  return SHUNT_OK;
}

int Refuse(Group* group, const absl::Status& why) {
  if (group != nullptr) group->Refuse(why);
  return Fail(why);
}

inline int Submit(shunt_comm* comm, board::Call& call, Side in, Side out, const shunt_call* options,
                  shunt_op** op) {
  Communicator& c = *comm->impl;
  Group* const group = c.OpenGroup();
  if (__builtin_expect(!LooksRight(call.spec, c.world_size(), c.rank(), call.peer, in, out), 0)) {
    if (absl::Status s = DescribeCall(call.spec, c.world_size(), c.rank(), call.peer, in, out);
        !s.ok()) {
      return Refuse(group, s);
    }
  }
  if (in.blocks != 0) call.in = static_cast<const std::byte*>(in.data);
  if (out.blocks != 0) call.out = const_cast<std::byte*>(static_cast<const std::byte*>(out.data));
  Wishes wishes;
  wishes.timeout_ns = c.default_timeout_ns();
  if (options != nullptr || call.spec.redop == Redop::kPremulSum) {
    if (absl::Status s = ReadCall(options, c, &call, &wishes); !s.ok()) return Refuse(group, s);
  }
  if (__builtin_expect(c.device() || cuda::InProcess(), 0)) {
    auto device = cuda::CheckMemory(c, call, in, out, wishes.stream.has_value());
    if (!device.ok()) return Refuse(group, device.status());
    wishes.device = *device;
  }
  if (__builtin_expect(group != nullptr || op != nullptr || wishes.stream.has_value(), 0)) {
    return SubmitElsewhere(comm, group, call, wishes, op);
  }
  call.deadline_ns = DeadlineNs(wishes.timeout_ns);
  c.BeginOperation();
  const absl::Status outcome = c.member().Run(call);
  c.EndOperation();
  return Result(outcome);
}

// Checks the handle and runs `body`, which makes the call; nothing is thrown out of it.
template <typename Body>
inline int WithComm(shunt_comm* comm, shunt_op** op, Body&& body) {
  return Guarded([&]() -> int {
    if (op != nullptr) *op = nullptr;
    if (comm == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "comm is null");
    if (__builtin_expect(comm->impl->session().InForkedChild(), 0)) {
      return Fail(comm->impl->session().CheckProcess());
    }
    return body(*comm->impl);
  });
}

inline CollectiveSpec SpecOf(OpKind kind, shunt_dtype dtype, int redop, int32_t root,
                             uint64_t count) {
  // Values that do not fit the enums become invalid ones, not others.
  const auto narrow = [](unsigned v) { return static_cast<uint8_t>(v < 255 ? v : 255); };
  return {kind, static_cast<DataType>(narrow(static_cast<unsigned>(dtype))),
          static_cast<Redop>(narrow(static_cast<unsigned>(redop))), root, count};
}

inline int Collective(OpKind kind, shunt_comm* comm, const void* in, void* out, uint64_t count,
                      shunt_dtype dtype, int redop, int32_t root, const shunt_call* options,
                      shunt_op** op) {
  return WithComm(comm, op, [&](Communicator& c) {
    board::Call call;
    call.spec = SpecOf(kind, dtype, redop, root, count);
    // The most frequent call by far has one of each.
    const bool one = kind == OpKind::kAllReduce;
    const Side in_side{in, one ? 1 : InputBlocks(call.spec, c.world_size(), c.rank())};
    const Side out_side{out, one ? 1 : OutputBlocks(call.spec, c.world_size(), c.rank())};
    return Submit(comm, call, in_side, out_side, options, op);
  });
}

}  // namespace
}  // namespace shunt::client

using shunt::OpKind;
using shunt::client::CheckTables;
using shunt::client::Collective;
using shunt::client::Refuse;
using shunt::client::SpecOf;
using shunt::client::Submit;
using shunt::client::WithComm;

extern "C" {

int shunt_all_reduce(shunt_comm* comm, const void* in, void* out, uint64_t count, shunt_dtype dtype,
                     shunt_redop redop, const shunt_call* call, shunt_op** op) {
  return Collective(OpKind::kAllReduce, comm, in, out, count, dtype, redop, 0, call, op);
}

int shunt_reduce(shunt_comm* comm, const void* in, void* out, uint64_t count, shunt_dtype dtype,
                 shunt_redop redop, int32_t root, const shunt_call* call, shunt_op** op) {
  return Collective(OpKind::kReduce, comm, in, out, count, dtype, redop, root, call, op);
}

int shunt_broadcast(shunt_comm* comm, const void* in, void* out, uint64_t count, shunt_dtype dtype,
                    int32_t root, const shunt_call* call, shunt_op** op) {
  return Collective(OpKind::kBroadcast, comm, in, out, count, dtype, 0, root, call, op);
}

int shunt_all_gather(shunt_comm* comm, const void* in, void* out, uint64_t count, shunt_dtype dtype,
                     const shunt_call* call, shunt_op** op) {
  return Collective(OpKind::kAllGather, comm, in, out, count, dtype, 0, 0, call, op);
}

int shunt_reduce_scatter(shunt_comm* comm, const void* in, void* out, uint64_t count,
                         shunt_dtype dtype, shunt_redop redop, const shunt_call* call,
                         shunt_op** op) {
  return Collective(OpKind::kReduceScatter, comm, in, out, count, dtype, redop, 0, call, op);
}

int shunt_all_to_all(shunt_comm* comm, const void* in, void* out, uint64_t count, shunt_dtype dtype,
                     const shunt_call* call, shunt_op** op) {
  return Collective(OpKind::kAllToAll, comm, in, out, count, dtype, 0, 0, call, op);
}

int shunt_all_to_all_v(shunt_comm* comm, const void* in, const uint64_t* send_counts,
                       const uint64_t* send_displs, void* out, const uint64_t* recv_counts,
                       const uint64_t* recv_displs, shunt_dtype dtype, const shunt_call* options,
                       shunt_op** op) {
  return WithComm(comm, op, [&](shunt::client::Communicator& c) -> int {
    shunt::board::Call call;
    call.spec = SpecOf(OpKind::kAllToAllV, dtype, 0, 0, 0);
    call.in = static_cast<const std::byte*>(in);
    call.out = static_cast<std::byte*>(out);
    call.send_counts = send_counts;
    call.send_displs = send_displs;
    call.recv_counts = recv_counts;
    call.recv_displs = recv_displs;
    absl::Status status = ValidateSpec(call.spec, c.world_size());
    if (send_counts == nullptr || send_displs == nullptr || recv_counts == nullptr ||
        recv_displs == nullptr) {
      status.Update(
          absl::InvalidArgumentError("all_to_all_v: a table of counts or displacements is null"));
    }
    if (status.ok()) status = CheckTables(call, c.world_size());
    if (!status.ok()) return Refuse(c.OpenGroup(), status);
    return Submit(comm, call, {in, 0}, {out, 0}, options, op);
  });
}

int shunt_gather(shunt_comm* comm, const void* in, void* out, uint64_t count, shunt_dtype dtype,
                 int32_t root, const shunt_call* call, shunt_op** op) {
  return Collective(OpKind::kGather, comm, in, out, count, dtype, 0, root, call, op);
}

int shunt_scatter(shunt_comm* comm, const void* in, void* out, uint64_t count, shunt_dtype dtype,
                  int32_t root, const shunt_call* call, shunt_op** op) {
  return Collective(OpKind::kScatter, comm, in, out, count, dtype, 0, root, call, op);
}

int shunt_send(shunt_comm* comm, const void* in, uint64_t count, shunt_dtype dtype, int32_t peer,
               const shunt_call* options, shunt_op** op) {
  return WithComm(comm, op, [&](shunt::client::Communicator&) {
    shunt::board::Call call;
    call.spec = SpecOf(OpKind::kSend, dtype, 0, 0, count);
    call.peer = peer;
    return Submit(comm, call, {in, 1}, {nullptr, 0}, options, op);
  });
}

int shunt_recv(shunt_comm* comm, void* out, uint64_t count, shunt_dtype dtype, int32_t peer,
               const shunt_call* options, shunt_op** op) {
  return WithComm(comm, op, [&](shunt::client::Communicator&) {
    shunt::board::Call call;
    call.spec = SpecOf(OpKind::kRecv, dtype, 0, 0, count);
    call.peer = peer;
    return Submit(comm, call, {nullptr, 0}, {out, 1}, options, op);
  });
}

int shunt_barrier(shunt_comm* comm, const shunt_call* options, shunt_op** op) {
  return WithComm(comm, op, [&](shunt::client::Communicator&) {
    shunt::board::Call call;
    call.spec = SpecOf(OpKind::kBarrier, SHUNT_INT8, 0, 0, 0);
    return Submit(comm, call, {nullptr, 0}, {nullptr, 0}, options, op);
  });
}

}  // extern "C"
