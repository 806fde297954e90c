#include "client/src/file.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/transfers.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::client {
namespace {

// The daemon ends what takes too long, with words. What takes longer still means that it is stuck.
constexpr std::chrono::seconds kGrace{10};

uint32_t TimeoutMs(int64_t timeout_ns) {
  if (timeout_ns == kNeverNs) return 0;
  return static_cast<uint32_t>(std::clamp<int64_t>(timeout_ns / 1'000'000, 1, UINT32_MAX));
}

int64_t LeaseDeadlineNs(uint32_t timeout_ms) {
  return timeout_ms == 0 ? kNeverNs
                         : DeadlineAfterNs(std::chrono::milliseconds(timeout_ms) + kGrace);
}

template <typename Request>
absl::StatusOr<LeaseConnection::Reply> Ask(Session& session, Request request, int64_t timeout_ns,
                                           std::span<const int> fds = {}) {
  request.timeout_ms = TimeoutMs(timeout_ns);
  const int64_t deadline_ns = LeaseDeadlineNs(request.timeout_ms);
  return session.lease().Call(std::move(request), deadline_ns, fds);
}

// The reply to a request for a region.
template <typename Response>
absl::StatusOr<Response> RegionOf(const absl::StatusOr<LeaseConnection::Reply>& reply) {
  if (!reply.ok()) return reply.status();
  const auto* response = std::get_if<Response>(&reply->message.response);
  if (response == nullptr || response->region_id == 0) {
    return absl::InternalError("shuntd's reply to a request for a file has no region");
  }
  return *response;
}

std::string FileName(const std::string& root, const std::string& path) {
  return absl::StrCat("file '", Printable(path), "' of root '", Printable(root), "'");
}

std::string ObjectName(const ObjectPlace& place) {
  return absl::StrCat("object '", Printable(place.key), "' of bucket '", Printable(place.bucket),
                      "'");
}

}  // namespace

absl::StatusOr<std::shared_ptr<File>> File::Open(const std::shared_ptr<Session>& session,
                                                 OpenFile request, int fd, int64_t timeout_ns) {
  std::string name =
      fd < 0 ? FileName(request.root, request.path) : absl::StrCat("file of descriptor ", fd);
  const std::span<const int> fds(&fd, fd < 0 ? 0 : 1);
  SHUNT_ASSIGN_OR_RETURN(const auto opened,
                         RegionOf<FileOpened>(Ask(*session, std::move(request), timeout_ns, fds)));
  return std::shared_ptr<File>(
      new File(session, std::move(name), opened.region_id, opened.size_bytes, /*draft=*/false));
}

absl::StatusOr<std::shared_ptr<File>> File::Create(const std::shared_ptr<Session>& session,
                                                   CreateFile request, int64_t timeout_ns) {
  std::string name = FileName(request.root, request.path);
  const uint64_t bytes = request.size_bytes;
  SHUNT_ASSIGN_OR_RETURN(const auto created,
                         RegionOf<FileCreated>(Ask(*session, std::move(request), timeout_ns)));
  return std::shared_ptr<File>(
      new File(session, std::move(name), created.region_id, bytes, /*draft=*/true));
}

absl::StatusOr<std::shared_ptr<File>> File::Open(const std::shared_ptr<Session>& session,
                                                 OpenObject request, int64_t timeout_ns) {
  std::string name = ObjectName(request.place);
  SHUNT_ASSIGN_OR_RETURN(const auto opened,
                         RegionOf<FileOpened>(Ask(*session, std::move(request), timeout_ns)));
  return std::shared_ptr<File>(
      new File(session, std::move(name), opened.region_id, opened.size_bytes, /*draft=*/false));
}

absl::StatusOr<std::shared_ptr<File>> File::Create(const std::shared_ptr<Session>& session,
                                                   CreateObject request, int64_t timeout_ns) {
  std::string name = ObjectName(request.place);
  const uint64_t bytes = request.size_bytes;
  SHUNT_ASSIGN_OR_RETURN(const auto created,
                         RegionOf<FileCreated>(Ask(*session, std::move(request), timeout_ns)));
  return std::shared_ptr<File>(
      new File(session, std::move(name), created.region_id, bytes, /*draft=*/true));
}

File::~File() {
  // Nothing uses it: lists keep it, and transfers their lists. If it cannot be closed, it goes with
  // the session.
  if (!session_->InForkedChild()) (void)Release();
}

absl::Status File::CheckOpen() const {
  const State state = state_.load();
  if (state == State::kOpen) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(name_, " (region ", region_id_, ") is ",
                                          state == State::kClosed ? "closed" : "committed"));
}

// The daemon may not have seen in the ring yet what was posted before.
absl::Status File::CheckUnused() const {
  std::string what;
  if (!session_->transfers().Uses(region_id_, &what)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(name_, " (region ", region_id_, ") is in use by ", what));
}

absl::Status File::Sync(int64_t timeout_ns) {
  SHUNT_RETURN_IF_ERROR(CheckOpen());
  return Ask(*session_, SyncFile{region_id_, 0}, timeout_ns).status();
}

absl::Status File::Commit(int64_t timeout_ns) {
  SHUNT_RETURN_IF_ERROR(CheckOpen());
  if (draft_) SHUNT_RETURN_IF_ERROR(CheckUnused());
  SHUNT_RETURN_IF_ERROR(Ask(*session_, CommitDraft{region_id_, 0}, timeout_ns).status());
  state_.store(State::kCommitted);
  return absl::OkStatus();
}

absl::Status File::Close() {
  if (state_.load() == State::kOpen && !draft_) SHUNT_RETURN_IF_ERROR(CheckUnused());
  return Release();
}

absl::Status File::Release() {
  if (state_.load() != State::kOpen) return absl::OkStatus();
  const LeaseRequest request =
      draft_ ? LeaseRequest(AbortDraft{region_id_}) : LeaseRequest(FreeRegion{region_id_});
  absl::Status status = session_->lease().Call(request, RequestDeadlineNs()).status();
  // It is not there any more if a commit of it has failed, or with its session.
  if (!status.ok() && !absl::IsNotFound(status) && !absl::IsUnavailable(status)) return status;
  State open = State::kOpen;
  state_.compare_exchange_strong(open, State::kClosed);
  return absl::OkStatus();
}

}  // namespace shunt::client
