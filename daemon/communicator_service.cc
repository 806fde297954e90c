#include "absl/strings/str_cat.h"
#include "daemon/event_signal.h"
#include "daemon/services.h"
#include "daemon/text.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr uint32_t kDefaultTimeoutMs = 60'000;
constexpr size_t kReasonBytesMax = 256;

}  // namespace

uint64_t Services::Join(const SessionPtr& session, const v1::JoinRequest& request,
                        bool daemon_posts, JoinReply reply) {
  if (absl::Status status = CheckNotStopping(); !status.ok()) {
    reply(status, {});
    return 0;
  }
  JoinRequestArgs args;
  args.name = request.name();
  args.job = request.job();
  args.rank = request.rank();
  args.terms = {request.world_size(), request.algorithm(), request.deterministic(),
                request.device()};
  args.deadline_ns = DeadlineAfterNs(std::chrono::milliseconds(
      request.timeout_ms() == 0 ? kDefaultTimeoutMs : request.timeout_ms()));
  args.daemon_posts = daemon_posts;
  JoinDone done = [reply = std::move(reply)](const absl::StatusOr<Joined>& joined) {
    v1::JoinResponse response;
    if (joined.ok()) {
      const Communicator& communicator = *joined->communicator;
      response.set_communicator_id(communicator.id());
      response.set_epoch(communicator.epoch());
      response.set_warm(joined->warm);
      const std::vector<int32_t>& numbers = communicator.numbers();
      size_t index = 0;
      for (const Member& member : communicator.members()) {
        v1::Member* out = response.add_members();
        out->set_rank(numbers[index++]);
        out->set_pid(member.pid);
        out->set_session_id(member.session_id);
        out->set_name(member.name);
      }
    }
    reply(joined, response);
  };
  GpuEngine* const gpus = context_.operations->gpus;
  if (!args.terms.device || gpus == nullptr) {
    return context_.communicators->Join(session, args, std::move(done));
  }
  // A moment after the start it is not known yet which GPUs there are.
  const auto join = std::make_shared<std::atomic<uint64_t>>(0);
  gpus->WhenListed([table = context_.communicators, session, args, done, join] {
    join->store(table->Join(session, args, done));
  });
  return join->load();
}

absl::Status Services::Leave(const SessionPtr& session, const v1::LeaveRequest& request) {
  return context_.communicators->Leave(*session, request.communicator_id());
}

absl::Status Services::Abort(const SessionPtr& session, const v1::AbortRequest& request) {
  SHUNT_ASSIGN_OR_RETURN(const Membership membership,
                         session->FindMembership(request.communicator_id()));
  membership.communicator->Abort(membership.rank, Utf8Prefix(request.reason(), kReasonBytesMax));
  return absl::OkStatus();
}

absl::Status Services::Watch(const SessionPtr& session, const v1::WatchOperation& request,
                             ClientFd eventfd) {
  if (!eventfd.valid())
    return absl::InvalidArgumentError("watch_operation: the packet carries no descriptor");
  SHUNT_RETURN_IF_ERROR(CheckEventFd(eventfd.get()));
  SHUNT_ASSIGN_OR_RETURN(const Membership membership,
                         session->FindMembership(request.communicator_id()));
  if (!membership.communicator->TakesPart(membership.rank, request.channel())) {
    return absl::InvalidArgumentError(absl::StrCat("watch_operation: rank ", membership.rank,
                                                   " takes no part in channel ",
                                                   request.channel()));
  }
  // What the client submitted before it sent this must be known first.
  context_.scheduler->Drain(session);
  return membership.communicator->Watch(membership.rank, session, request.channel(),
                                        request.sequence(), eventfd.Release());
}

}  // namespace shunt::daemon
