// What clients ask for about transfers; services.h has the carriers.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/event_signal.h"
#include "daemon/services.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::daemon {
namespace {

// Fits the smallest carrier's packet.
constexpr size_t kTakenMax = 8;

absl::StatusOr<Grant> GrantOf(v1::SectionAccess access,
                              const google::protobuf::RepeatedField<uint32_t>& tenants) {
  Grant grant;
  switch (access) {
    case v1::SECTION_ACCESS_UNSPECIFIED:
    case v1::SECTION_ACCESS_READ_WRITE:
      break;
    case v1::SECTION_ACCESS_READ:
      grant.write = false;
      break;
    case v1::SECTION_ACCESS_WRITE:
      grant.read = false;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("access ", static_cast<int>(access),
                                                     ", expected 1 (read), 2 (write) or 3 (both)"));
  }
  constexpr int kTenantsMax = 64;
  if (tenants.size() > kTenantsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(tenants.size(), " user ids, expected at most ", kTenantsMax));
  }
  grant.tenants.assign(tenants.begin(), tenants.end());
  return grant;
}

}  // namespace

absl::StatusOr<v1::RegisterAgentResponse> Services::RegisterAgent(
    const SessionPtr& session, const v1::RegisterAgentRequest& request) {
  SHUNT_RETURN_IF_ERROR(CheckNotStopping());
  AgentTable& agents = context_.transfers->agents();
  v1::RegisterAgentResponse response;
  SHUNT_ASSIGN_OR_RETURN(const uint64_t incarnation,
                         agents.Register(session->owner(), request.name()));
  // It may have ended meanwhile: then either EndSession or this forgets the agent.
  if (session->ended.load()) {
    agents.SessionGone(session->id);
    return absl::CancelledError("the session has ended");
  }
  response.set_incarnation(incarnation);
  return response;
}

absl::StatusOr<v1::PublishSectionResponse> Services::PublishSection(
    const SessionPtr& session, const v1::PublishSectionRequest& request) {
  SHUNT_RETURN_IF_ERROR(CheckNotStopping());
  SHUNT_ASSIGN_OR_RETURN(Grant grant, GrantOf(request.access(), request.tenants()));
  SHUNT_ASSIGN_OR_RETURN(
      auto section, context_.transfers->OwnSection(session->id, request.name(), request.sets()));
  SHUNT_ASSIGN_OR_RETURN(const auto published, context_.transfers->agents().Publish(
                                                   session->id, std::move(section.section),
                                                   section.space, std::move(grant)));
  v1::PublishSectionResponse response;
  SHUNT_ASSIGN_OR_RETURN(*response.mutable_list(),
                         context_.transfers->SetSectionList(*session, published->list));
  response.set_version(published->version());
  return response;
}

absl::Status Services::WithdrawSection(const SessionPtr& session,
                                       const v1::WithdrawSectionRequest& request) {
  SHUNT_RETURN_IF_ERROR(context_.transfers->agents().Withdraw(session->id, request.name()));
  context_.transfers->DropSectionList(session->id, request.name());
  return absl::OkStatus();
}

void Services::FetchSection(const SessionPtr& session, const v1::FetchSectionRequest& request,
                            FetchReply reply) {
  if (absl::Status status = CheckNotStopping(); !status.ok()) return reply(status);
  const absl::StatusOr<Grant> grant = GrantOf(request.access(), {});
  if (!grant.ok()) return reply(grant.status());
  const bool write = request.access() != v1::SECTION_ACCESS_UNSPECIFIED && grant->write;
  const bool read = !write || grant->read;
  const auto fetched = [table = context_.transfers, session, reply = std::move(reply)](
                           const absl::StatusOr<std::shared_ptr<const Published>>& published) {
    if (!published.ok()) return reply(published.status());
    const auto list = table->AddList(*session, (*published)->list, *published);
    if (!list.ok()) return reply(list.status());
    v1::FetchSectionResponse response;
    *response.mutable_list() = *list;
    response.set_incarnation((*published)->incarnation());
    response.set_version((*published)->version());
    response.set_node((*published)->node);
    reply(response);
  };
  const uint32_t user = session->peer.uid;
  RemoteSections& others = *context_.remote_sections;
  AgentAddress address = ParseAgent(request.agent());
  if (absl::Status status = CheckAgentName(address.agent); !status.ok()) return reply(status);
  if (others.IsHere(address)) {
    bool has_agent = false;
    auto published = context_.transfers->agents().Find(user, address.agent, request.section(),
                                                       write, &has_agent);
    if (published.ok() && read) {
      if (absl::Status status = (*published)->CheckAccess(user, /*write=*/false); !status.ok()) {
        published = status;
      }
    }
    if (has_agent || address.has_node || !others.in_cluster()) return fetched(published);
  }
  others.Fetch({user, std::move(address), request.section(), read, write}, fetched);
}

absl::StatusOr<v1::PrepareListResponse> Services::PrepareList(
    const SessionPtr& session, const v1::PrepareListRequest& request) {
  SHUNT_RETURN_IF_ERROR(CheckNotStopping());
  SHUNT_ASSIGN_OR_RETURN(auto section,
                         context_.transfers->OwnSection(session->id, "prepared", request.sets()));
  SHUNT_ASSIGN_OR_RETURN(auto list,
                         p2p::PreparedList::Prepare(std::move(section.section), section.space));
  v1::PrepareListResponse response;
  SHUNT_ASSIGN_OR_RETURN(*response.mutable_list(),
                         context_.transfers->AddList(*session, std::move(list), nullptr));
  return response;
}

absl::Status Services::ReleaseList(const SessionPtr& session,
                                   const v1::ReleaseListRequest& request) {
  return context_.transfers->ReleaseList(session->id, request.list_id());
}

void Services::PostTransfer(const SessionPtr& session, const v1::PostTransferRequest& request,
                            PostReply reply) {
  if (absl::Status status = CheckNotStopping(); !status.ok()) return reply(status);
  // Looking at it may take long, and the carriers have others to serve.
  context_.transfers->pool().Add(
      p2p::OneChunk([table = context_.transfers, session, request, reply = std::move(reply)] {
        const auto posted = DecodePost(request);
        const auto id = posted.ok() ? table->Post(session, *posted) : posted.status();
        if (!id.ok()) return reply(id.status());
        v1::PostTransferResponse response;
        response.set_transfer_id(*id);
        reply(response);
      }),
      p2p::Priority::kLatency, 1);
}

void Services::ExplainTransfer(const SessionPtr& session, const v1::PostTransferRequest& request,
                               ExplainReply reply) {
  context_.transfers->pool().Add(
      p2p::OneChunk([table = context_.transfers, session, request, reply = std::move(reply)] {
        const auto posted = DecodePost(request);
        if (!posted.ok()) return reply(posted.status());
        reply(table->Explain(*session, *posted));
      }),
      p2p::Priority::kLatency, 1);
}

Services::CancelWait Services::WaitTransfer(const SessionPtr& session,
                                            const v1::WaitTransferRequest& request,
                                            TransferDone done) {
  // What the client posted before it asked must be known first.
  if (session->ring.valid()) context_.scheduler->Drain(session);
  return context_.transfers->Wait(
      session->id, request.transfer_id(),
      [done = std::move(done)](const absl::StatusOr<TransferReport>& report) {
        if (!report.ok()) return done(report.status(), {});
        v1::TransferReport response;
        response.set_bytes(report->bytes);
        response.set_route(RouteName(report->route));
        response.set_waited_ns(report->waited_ns);
        response.set_moved_ns(report->moved_ns);
        done(report->outcome, response);
      });
}

absl::Status Services::CancelTransfer(const SessionPtr& session,
                                      const v1::CancelTransferRequest& request) {
  if (session->ring.valid()) context_.scheduler->Drain(session);
  return context_.transfers->Cancel(
      session->id, request.transfer_id(),
      absl::CancelledError(absl::StrCat("transfer ", request.transfer_id(), " was cancelled")));
}

absl::Status Services::WatchTransfer(const SessionPtr& session, const v1::WatchTransfer& request,
                                     ClientFd eventfd) {
  if (!eventfd.valid())
    return absl::InvalidArgumentError("watch_transfer: the packet carries no descriptor");
  SHUNT_RETURN_IF_ERROR(CheckEventFd(eventfd.get()));
  if (session->ring.valid()) context_.scheduler->Drain(session);
  return context_.transfers->Watch(session->id, request.transfer_id(), eventfd.Release());
}

void Services::Notify(const SessionPtr& session, const v1::NotifyRequest& request,
                      NotifyReply reply) {
  if (absl::Status status = CheckNotStopping(); !status.ok()) return reply(status);
  if (request.payload().size() > Inbox::kPayloadBytesMax) {
    return reply(absl::InvalidArgumentError(
        absl::StrCat("notification of ", request.payload().size(), " bytes, expected at most ",
                     Inbox::kPayloadBytesMax)));
  }
  AgentTable& agents = context_.transfers->agents();
  RemoteSections& others = *context_.remote_sections;
  AgentAddress address = ParseAgent(request.agent());
  if (absl::Status status = CheckAgentName(address.agent); !status.ok()) return reply(status);
  cluster::AgentNotice notice{session->peer.uid, address.agent, agents.NameOf(session->id),
                              request.payload()};
  if (others.IsHere(address)) {
    bool has_agent = false;
    absl::Status status = agents.Deliver(notice, &has_agent);
    if (has_agent || address.has_node || !others.in_cluster()) return reply(status);
  }
  others.Notify(std::move(address), std::move(notice), std::move(reply));
}

Services::CancelWait Services::TakeNotifications(const SessionPtr& session,
                                                 const v1::TakeNotificationsRequest& request,
                                                 TakenReply reply) {
  const auto inbox = context_.transfers->agents().OwnInbox(session->id);
  if (!inbox.ok()) {
    reply(inbox.status(), {});
    return [] { return false; };
  }
  const auto take = [inbox = *inbox, max = request.max(), reply = std::move(reply)] {
    bool more = false;
    const size_t most = max == 0 ? kTakenMax : std::min<size_t>(max, kTakenMax);
    v1::TakeNotificationsResponse response;
    for (Notification& taken : inbox->Take(most, &more)) {
      v1::Notification* const out = response.add_notifications();
      out->set_from(std::move(taken.from));
      out->set_payload(std::move(taken.payload));
    }
    response.set_more(more);
    reply(absl::OkStatus(), response);
  };
  if (request.wait_ms() == 0) {
    take();
    return [] { return false; };
  }
  // Once: when something comes, when another call takes this one's place, or when time is up.
  auto once = std::make_shared<std::atomic<bool>>(false);
  const auto take_once = [once, take] {
    if (!once->exchange(true)) take();
  };
  const int64_t deadline_ns = DeadlineAfterNs(std::chrono::milliseconds(request.wait_ms()));
  const EventLoop::TimerId timer = context_.loop->At(deadline_ns, take_once);
  (*inbox)->WhenSome([take_once, timer, loop = context_.loop] {
    loop->Cancel(timer);
    take_once();
  });
  return [once, timer, loop = context_.loop] {
    if (once->exchange(true)) return false;
    loop->Cancel(timer);
    return true;
  };
}

absl::Status Services::WatchNotifications(const SessionPtr& session, ClientFd eventfd) {
  if (!eventfd.valid())
    return absl::InvalidArgumentError("watch_notifications: the packet carries no descriptor");
  SHUNT_RETURN_IF_ERROR(CheckEventFd(eventfd.get()));
  SHUNT_ASSIGN_OR_RETURN(const std::shared_ptr<Inbox> inbox,
                         context_.transfers->agents().OwnInbox(session->id));
  inbox->SetEvent(eventfd.Release());
  return absl::OkStatus();
}

}  // namespace shunt::daemon
