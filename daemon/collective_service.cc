#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "daemon/services.h"
#include "runtime/board/member.h"
#include "runtime/collectives/plan/local_plan.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr uint32_t kDefaultTimeoutMs = 60'000;
// Operations of one session that have ended but were never waited for, and those in flight.
constexpr size_t kOperationsMax = 1024;
// Sequences fit into a board word beside two bits of state.
constexpr uint64_t kSequenceMax = uint64_t{1} << 61;

template <typename... Args>
absl::Status Invalid(OpKind kind, const Args&... args) {
  const std::string_view name = Name(kind);
  return absl::InvalidArgumentError(
      absl::StrCat(absl::string_view(name.data(), name.size()), ": ", args...));
}

// What the proto's numbers say, checked; the enums' numbers are those of runtime/core/types.h.
template <typename Request>
absl::StatusOr<CollectiveSpec> SpecOf(const Request& request, int world) {
  CollectiveSpec spec{};
  if (request.kind() < 0 || request.kind() >= kOpKindCount) {
    return absl::InvalidArgumentError(absl::StrCat("unknown operation ",
                                                   static_cast<int>(request.kind()),
                                                   ", expected 0 to ", kOpKindCount - 1));
  }
  spec.kind = static_cast<OpKind>(request.kind());
  if (request.data_type() < 0 || request.data_type() >= kDataTypeCount) {
    return Invalid(spec.kind, "unknown data type ", static_cast<int>(request.data_type()),
                   ", expected 0 to ", kDataTypeCount - 1);
  }
  spec.dtype = static_cast<DataType>(request.data_type());
  if (Reduces(spec.kind) && (request.reduce_op() < 0 || request.reduce_op() >= kRedopCount)) {
    return Invalid(spec.kind, "unknown reduction ", static_cast<int>(request.reduce_op()),
                   ", expected 0 to ", kRedopCount - 1);
  }
  spec.redop = Reduces(spec.kind) ? static_cast<Redop>(request.reduce_op()) : Redop::kSum;
  spec.root = HasRoot(spec.kind) ? request.root() : 0;
  spec.count = request.count();
  const bool pair = spec.kind == OpKind::kSend || spec.kind == OpKind::kRecv;
  if (pair && (request.root() < 0 || request.root() >= world)) {
    return Invalid(spec.kind, "peer ", request.root(), ", expected a rank from 0 to ", world - 1);
  }
  SHUNT_RETURN_IF_ERROR(ValidateSpec(spec, pair ? 2 : world));
  return spec;
}

absl::Status TakeScalar(const CollectiveSpec& spec, const std::string& bytes, Scalar* scalar) {
  if (!Reduces(spec.kind) || spec.redop != Redop::kPremulSum) return absl::OkStatus();
  if (bytes.size() != SizeOf(spec.dtype)) {
    return Invalid(spec.kind, "scalar of ", bytes.size(), " bytes, expected one element of ",
                   SizeOf(spec.dtype));
  }
  std::memcpy(scalar->bytes, bytes.data(), bytes.size());
  return absl::OkStatus();
}

// The end of the last block that a table names, in elements; INVALID_ARGUMENT if that overflows.
absl::StatusOr<uint64_t> TableElements(
    const google::protobuf::RepeatedField<uint64_t>& counts,
    const google::protobuf::RepeatedField<uint64_t>& displacements, const char* what) {
  uint64_t elements = 0;
  for (int i = 0; i < counts.size(); ++i) {
    uint64_t end = 0;
    if (counts[i] != 0 && __builtin_add_overflow(counts[i], displacements[i], &end)) {
      return Invalid(OpKind::kAllToAllV, what, " count ", counts[i], " and displacement ",
                     displacements[i], " of rank ", i, " overflow");
    }
    elements = std::max(elements, end);
  }
  return elements;
}

// The buffer of one side, of `elements` elements: in a region of this session, aligned, inside.
absl::StatusOr<board::RegionRef> PlaceOf(const Services& services, Session& session,
                                         const CollectiveSpec& spec, bool given,
                                         const v1::Buffer& buffer, uint64_t elements,
                                         const char* side, Operation& operation) {
  if (elements == 0) return board::RegionRef{};
  if (!given)
    return Invalid(spec.kind, "this rank has ", elements, " elements of ", side,
                   ", but no buffer is set");
  const uint64_t element_bytes = SizeOf(spec.dtype);
  uint64_t bytes;
  if (__builtin_mul_overflow(elements, element_bytes, &bytes)) {
    return Invalid(spec.kind, side, " of ", elements, " elements overflows");
  }
  if (buffer.offset_bytes() % element_bytes != 0) {
    const std::string_view dtype = Name(spec.dtype);
    return Invalid(spec.kind, side, " offset ", buffer.offset_bytes(),
                   " is not aligned: ", absl::string_view(dtype.data(), dtype.size()),
                   " needs a multiple of ", element_bytes);
  }
  SHUNT_ASSIGN_OR_RETURN(memory::RegionUse use, services.context().regions->Use(
                                                    session.id, buffer.region_id(),
                                                    absl::StrCat("operation ", operation.id())));
  SHUNT_RETURN_IF_ERROR(use->CheckRange(buffer.offset_bytes(), bytes));
  operation.uses.push_back(std::move(use));
  return board::RegionRef{buffer.region_id(), buffer.offset_bytes()};
}

bool Overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a_bytes != 0 && b_bytes != 0 && a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

absl::StatusOr<v1::SubmitResponse> Services::Submit(const SessionPtr& session,
                                                    const v1::SubmitRequest& request) {
  // While the daemon drains, what other ranks have begun may end.
  if (stopping()) return CheckNotStopping();
  SHUNT_ASSIGN_OR_RETURN(const Membership membership,
                         session->FindMembership(request.communicator_id()));
  if (!membership.daemon_posts) {
    return absl::FailedPreconditionError(absl::StrCat(
        "communicator ", request.communicator_id(),
        " was joined over the lease socket: its member posts its own calls on the board"));
  }
  const int world = membership.communicator->world();
  const int rank = membership.rank;
  board::Call call;
  SHUNT_ASSIGN_OR_RETURN(call.spec, SpecOf(request, world));
  const OpKind kind = call.spec.kind;
  const bool pair = kind == OpKind::kSend || kind == OpKind::kRecv;
  if (pair) call.peer = request.root();

  auto operation = std::make_shared<Operation>(next_operation_id_.fetch_add(1));
  uint64_t in_elements;
  uint64_t out_elements;
  if (kind == OpKind::kAllToAllV) {
    for (const auto* list : {&request.send_counts(), &request.send_displacements(),
                             &request.receive_counts(), &request.receive_displacements()}) {
      if (list->size() != world) {
        return Invalid(kind, "a list of ", list->size(),
                       " counts or displacements, expected one for each of ", world, " ranks");
      }
    }
    call.send_counts = request.send_counts().data();
    call.send_displs = request.send_displacements().data();
    call.recv_counts = request.receive_counts().data();
    call.recv_displs = request.receive_displacements().data();
    SHUNT_ASSIGN_OR_RETURN(
        in_elements, TableElements(request.send_counts(), request.send_displacements(), "send"));
    SHUNT_ASSIGN_OR_RETURN(out_elements, TableElements(request.receive_counts(),
                                                       request.receive_displacements(), "receive"));
  } else {
    // ValidateSpec has bounded count * world. A receive is its send seen from the other side.
    const int me = pair ? (kind == OpKind::kSend ? 0 : 1) : rank;
    const int blocks_world = pair ? 2 : world;
    in_elements = InputBlocks(call.spec, blocks_world, me) * call.spec.count;
    out_elements = OutputBlocks(call.spec, blocks_world, me) * call.spec.count;
  }
  SHUNT_ASSIGN_OR_RETURN(const board::RegionRef in,
                         PlaceOf(*this, *session, call.spec, request.has_input(), request.input(),
                                 in_elements, "input", *operation));
  SHUNT_ASSIGN_OR_RETURN(const board::RegionRef out,
                         PlaceOf(*this, *session, call.spec, request.has_output(), request.output(),
                                 out_elements, "output", *operation));
  if (in.region != 0 && in.region == out.region) {
    const uint64_t element = SizeOf(call.spec.dtype);
    const bool forbidden =
        kind == OpKind::kAllToAllV
            ? Overlap(in.offset, in_elements * element, out.offset, out_elements * element)
            : PlacementOf(call.spec, world, rank, in.offset, out.offset) == Placement::kForbidden;
    if (forbidden) {
      return Invalid(kind, "input at offset ", in.offset, " and output at offset ", out.offset,
                     " of region ", in.region,
                     " overlap in a way that is not NCCL's in-place placement");
    }
  }
  SHUNT_RETURN_IF_ERROR(TakeScalar(call.spec, request.scalar(), &call.scalar));
  call.deadline_ns = DeadlineAfterNs(std::chrono::milliseconds(
      request.timeout_ms() == 0 ? kDefaultTimeoutMs : request.timeout_ms()));
  {
    std::lock_guard lock(session->mutex);
    if (session->ended.load()) return absl::CancelledError("the session has ended");
    if (session->operations.size() >= kOperationsMax) {
      return absl::ResourceExhaustedError(absl::StrCat("session ", session->id, " has ",
                                                       kOperationsMax,
                                                       " operations that it did not wait for"));
    }
    session->operations.emplace(operation->id(), operation);
  }
  const absl::Status posted =
      membership.communicator->PostFor(rank, call, in, out, call.deadline_ns, operation);
  if (!posted.ok()) {
    operation->Finish(posted);  // frees its regions for others
    std::lock_guard lock(session->mutex);
    session->operations.erase(operation->id());
    return posted;
  }
  v1::SubmitResponse response;
  response.set_operation_id(operation->id());
  return response;
}

absl::StatusOr<Services::CancelWait> Services::Wait(const SessionPtr& session,
                                                    const v1::WaitRequest& request,
                                                    Operation::Waiter done) {
  std::shared_ptr<Operation> operation;
  {
    std::lock_guard lock(session->mutex);
    const auto it = session->operations.find(request.operation_id());
    if (it == session->operations.end()) {
      return absl::NotFoundError(
          absl::StrCat("operation ", request.operation_id(),
                       ": this session has no such operation, or its outcome was "
                       "collected before"));
    }
    operation = it->second;
  }
  const uint64_t waiter =
      operation->Wait([weak = std::weak_ptr<Session>(session), id = operation->id(),
                       done = std::move(done)](const absl::Status& outcome) {
        if (const SessionPtr session = weak.lock()) {
          std::lock_guard lock(session->mutex);
          session->operations.erase(id);
        }
        done(outcome);
      });
  return CancelWait([operation, waiter] { return operation->CancelWait(waiter); });
}

absl::StatusOr<v1::CaptureCallResponse> Services::CaptureCall(
    const SessionPtr& session, const v1::CaptureCallRequest& request) {
  SHUNT_RETURN_IF_ERROR(CheckNotStopping());
  SHUNT_ASSIGN_OR_RETURN(const Membership membership,
                         session->FindMembership(request.communicator_id()));
  Communicator::CapturedCall call;
  SHUNT_ASSIGN_OR_RETURN(call.spec, SpecOf(request, membership.communicator->world()));
  const OpKind kind = call.spec.kind;
  if (kind == OpKind::kSend || kind == OpKind::kRecv || kind == OpKind::kAllToAllV) {
    return absl::UnimplementedError(
        absl::StrCat(std::string(Name(kind)),
                     " in a captured graph; expected a collective of all ranks with equal counts"));
  }
  const auto place = [](const v1::Buffer& buffer) {
    return board::RegionRef{buffer.region_id(), buffer.offset_bytes()};
  };
  call.sequence = request.sequence();
  call.in = place(request.input());
  call.out = place(request.output());
  call.gate = place(request.gate());
  SHUNT_RETURN_IF_ERROR(TakeScalar(call.spec, request.scalar(), &call.scalar));
  SHUNT_RETURN_IF_ERROR(membership.communicator->Capture(membership.rank, session, call));
  return v1::CaptureCallResponse();
}

void Services::ReleaseCapture(const SessionPtr& session, const v1::ReleaseCaptureRequest& request,
                              std::function<void(const absl::Status&)> reply) {
  const absl::StatusOr<Membership> membership = session->FindMembership(request.communicator_id());
  if (!membership.ok()) return reply(membership.status());
  membership->communicator->ReleaseCapture(membership->rank, request.sequence(), std::move(reply));
}

void Services::OnSubmission(const SessionPtr& session, const ring::Submission& submission) {
  switch (static_cast<ring::Opcode>(submission.opcode)) {
    case ring::Opcode::kNop:
      return;
    case ring::Opcode::kServe: {
      const absl::StatusOr<Membership> membership =
          session->FindMembership(submission.communicator_id);
      if (!membership.ok()) {
        session->Complete(submission.token, membership.status().code());
        return;
      }
      if (submission.sequence == 0 || submission.sequence >= kSequenceMax ||
          !membership->communicator->TakesPart(membership->rank, submission.channel)) {
        session->Complete(submission.token, absl::StatusCode::kInvalidArgument);
        return;
      }
      membership->communicator->Serve(membership->rank, session, submission);
      return;
    }
    case ring::Opcode::kKick: {
      const absl::StatusOr<Membership> membership =
          session->FindMembership(submission.communicator_id);
      if (membership.ok())
        membership->communicator->Kick(submission.channel, submission.sequence,
                                       submission.deadline_ns);
      return;
    }
    case ring::Opcode::kTransfer:
      if (const absl::Status status = CheckNotStopping(); !status.ok()) {
        return context_.transfers->FailOnRing(session, submission.token, status);
      }
      return context_.transfers->PostFromRing(session, submission);
  }
  // An opcode that this daemon does not know: no completion is owed.
}

}  // namespace shunt::daemon
