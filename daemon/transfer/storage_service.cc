// What clients ask for about files and objects; services.h has the carriers.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/services.h"

namespace shunt::daemon {
namespace {

int64_t DeadlineOf(uint32_t timeout_ms) {
  return timeout_ms == 0 ? kNeverNs : DeadlineAfterNs(std::chrono::milliseconds(timeout_ms));
}

StoreRegions::ObjectPlace PlaceOf(const std::string& endpoint,
                                  const v1::ObjectCredentials& credentials) {
  return {endpoint, credentials.access_key_id(), credentials.secret_access_key(),
          credentials.session_token(), credentials.daemon_identity()};
}

StoreRegions::Opened Answer(Services::OpenFileReply reply) {
  return [reply = std::move(reply)](const absl::StatusOr<std::shared_ptr<StoreRegion>>& region) {
    if (!region.ok()) return reply(region.status());
    v1::OpenFileResponse response;
    response.set_region_id((*region)->id);
    response.set_size_bytes((*region)->bytes);
    reply(response);
  };
}

StoreRegions::Opened Answer(Services::CreateFileReply reply) {
  return [reply = std::move(reply)](const absl::StatusOr<std::shared_ptr<StoreRegion>>& region) {
    if (!region.ok()) return reply(region.status());
    v1::CreateFileResponse response;
    response.set_region_id((*region)->id);
    reply(response);
  };
}

}  // namespace

void Services::OpenFile(const SessionPtr& session, const v1::OpenFileRequest& request,
                        ClientFd descriptor, OpenFileReply reply) {
  if (absl::Status status = CheckNotStopping(); !status.ok()) return reply(status);
  if (!v1::FileAccess_IsValid(request.access())) {
    return reply(absl::InvalidArgumentError(absl::StrCat(
        "access ", static_cast<int>(request.access()), ", expected 0 (read) or 1 (read-write)")));
  }
  if (!descriptor.valid() && request.root().empty()) {
    return reply(absl::InvalidArgumentError(
        "open_file: neither a descriptor came with it nor a root is named, expected one of them"));
  }
  storage::OpenRequest open;
  open.container = request.root();
  open.name = request.path();
  open.access = request.access() == v1::FILE_ACCESS_READ_WRITE ? storage::Access::kReadWrite
                                                               : storage::Access::kRead;
  open.deadline_ns = DeadlineOf(request.timeout_ms());
  context_.stores->Open(session, {}, std::move(open), std::move(descriptor),
                        Answer(std::move(reply)));
}

void Services::CreateFile(const SessionPtr& session, const v1::CreateFileRequest& request,
                          CreateFileReply reply) {
  if (absl::Status status = CheckNotStopping(); !status.ok()) return reply(status);
  storage::BeginRequest begin;
  begin.container = request.root();
  begin.name = request.path();
  begin.bytes = request.size_bytes();
  begin.if_absent = request.if_absent();
  begin.deadline_ns = DeadlineOf(request.timeout_ms());
  context_.stores->Create(session, {}, std::move(begin), Answer(std::move(reply)));
}

void Services::OpenObject(const SessionPtr& session, const v1::OpenObjectRequest& request,
                          OpenFileReply reply) {
  if (absl::Status status = CheckNotStopping(); !status.ok()) return reply(status);
  storage::OpenRequest open;
  open.container = request.bucket();
  open.name = request.key();
  open.deadline_ns = DeadlineOf(request.timeout_ms());
  context_.stores->Open(session, PlaceOf(request.endpoint(), request.credentials()),
                        std::move(open), {}, Answer(std::move(reply)));
}

void Services::CreateObject(const SessionPtr& session, const v1::CreateObjectRequest& request,
                            CreateFileReply reply) {
  if (absl::Status status = CheckNotStopping(); !status.ok()) return reply(status);
  storage::BeginRequest begin;
  begin.container = request.bucket();
  begin.name = request.key();
  begin.bytes = request.size_bytes();
  begin.if_absent = request.if_absent();
  begin.deadline_ns = DeadlineOf(request.timeout_ms());
  context_.stores->Create(session, PlaceOf(request.endpoint(), request.credentials()),
                          std::move(begin), Answer(std::move(reply)));
}

void Services::CommitDraft(const SessionPtr& session, const v1::CommitDraftRequest& request,
                           StatusReply reply) {
  context_.stores->Commit(session, request.region_id(), DeadlineOf(request.timeout_ms()),
                          std::move(reply));
}

void Services::AbortDraft(const SessionPtr& session, const v1::AbortDraftRequest& request,
                          StatusReply reply) {
  context_.stores->Abort(session, request.region_id(), std::move(reply));
}

void Services::SyncFile(const SessionPtr& session, const v1::SyncFileRequest& request,
                        StatusReply reply) {
  context_.stores->Sync(session, request.region_id(), DeadlineOf(request.timeout_ms()),
                        std::move(reply));
}

}  // namespace shunt::daemon
