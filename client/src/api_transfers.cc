// The C interface's transfers.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/deadline.h"
#include "client/src/error.h"
#include "client/src/options.h"
#include "client/src/transfer_handles.h"
#include "runtime/core/status.h"

using shunt::client::CheckSession;
using shunt::client::Fail;
using shunt::client::FillStruct;
using shunt::client::Guarded;
using shunt::client::Posting;
using shunt::client::ReadOptions;
using shunt::client::Result;
using shunt::ring::PostedForm;

namespace {

constexpr int64_t kDefaultTimeoutNs = int64_t{60} * 1'000'000'000;

// Arrays of the C interface are read as what they are posted as.
static_assert(SHUNT_FORM_ALL == static_cast<int>(PostedForm::kAll));
static_assert(SHUNT_FORM_RUNS == static_cast<int>(PostedForm::kRuns));
static_assert(SHUNT_FORM_IDS32 == static_cast<int>(PostedForm::kIds32));
static_assert(SHUNT_FORM_IDS64 == static_cast<int>(PostedForm::kIds64));
static_assert(SHUNT_FORM_PIECES == static_cast<int>(PostedForm::kRaw));
static_assert(sizeof(shunt_run) == sizeof(shunt::ring::PostedRun) &&
              offsetof(shunt_run, step) == offsetof(shunt::ring::PostedRun, step));
static_assert(sizeof(shunt_piece) == sizeof(shunt::ring::PostedPiece) &&
              offsetof(shunt_piece, bytes) == offsetof(shunt::ring::PostedPiece, length));
static_assert(sizeof(shunt_span) == sizeof(shunt::client::Span));

absl::StatusOr<int64_t> Timeout(const char* name, int64_t given_ns) {
  if (given_ns < 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", given_ns, ", expected 0 or more"));
  }
  return given_ns == 0 ? kDefaultTimeoutNs : given_ns;
}

absl::StatusOr<shunt::client::Selection> ReadSelection(const shunt_session& session,
                                                       const char* name,
                                                       const shunt_selection* given) {
  const auto wrong = [name](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat(name, words...));
  };
  if (given == nullptr) return wrong(" is null");
  shunt_selection s;
  SHUNT_RETURN_IF_ERROR(ReadOptions("shunt_selection", sizeof(s), given, &s));
  if (s.list == nullptr) return wrong(".list is null");
  if (&s.list->impl->session() != session.impl.get()) {
    return wrong(".list is of session ", s.list->impl->session().id(), ", expected one of session ",
                 session.impl->id());
  }
  if (s.form < SHUNT_FORM_ALL || s.form > SHUNT_FORM_POINTERS) {
    return wrong(".form is ", s.form, ", expected a shunt_form_value, 0 to 5");
  }
  if (s.reserved != 0) return wrong(".reserved is ", s.reserved, ", expected 0");
  const bool spans = s.form == SHUNT_FORM_POINTERS;
  if (spans && s.list->impl->kind() == shunt::client::List::Kind::kFetched) {
    return wrong(
        ".form is SHUNT_FORM_POINTERS, and its list is another agent's, whose memory has no "
        "pointers here: expected SHUNT_FORM_PIECES");
  }
  return shunt::client::Selection{
      .list = s.list->impl,
      .form = spans ? PostedForm::kRaw : static_cast<PostedForm>(s.form),
      .spans = spans,
      .data = s.data,
      .count = s.count,
      .unit = s.unit,
      .repeats = s.repeats,
      .repeat_step = s.repeat_step};
}

absl::StatusOr<Posting> ReadPosting(const shunt_session& session, shunt_direction direction,
                                    const shunt_selection* local, const shunt_selection* remote,
                                    const shunt_transfer_options* given) {
  if (direction != SHUNT_PULL && direction != SHUNT_PUSH) {
    return absl::InvalidArgumentError(
        absl::StrCat("direction is ", direction, ", expected SHUNT_PULL (0) or SHUNT_PUSH (1)"));
  }
  shunt_transfer_options o;
  SHUNT_RETURN_IF_ERROR(ReadOptions("shunt_transfer_options", sizeof(o), given, &o));
  if (o.priority < SHUNT_PRIORITY_BULK || o.priority > SHUNT_PRIORITY_BACKGROUND) {
    return absl::InvalidArgumentError(absl::StrCat("shunt_transfer_options.priority is ",
                                                   o.priority,
                                                   ", expected a shunt_priority_value, 0 to 2"));
  }
  if (o.notification == nullptr && o.notification_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shunt_transfer_options.notification is null, expected ", o.notification_bytes, " bytes"));
  }
  Posting posting;
  posting.direction = static_cast<uint8_t>(direction);
  posting.transfer_class = static_cast<uint8_t>(o.priority);
  SHUNT_ASSIGN_OR_RETURN(posting.local, ReadSelection(session, "local", local));
  SHUNT_ASSIGN_OR_RETURN(posting.remote, ReadSelection(session, "remote", remote));
  if (posting.local.list->kind() == shunt::client::List::Kind::kFetched) {
    return absl::InvalidArgumentError(
        "local.list is another agent's section, expected a list of this session's own memory");
  }
  if (o.notification != nullptr) {
    posting.notification.emplace(static_cast<const char*>(o.notification), o.notification_bytes);
  }
  SHUNT_ASSIGN_OR_RETURN(const int64_t timeout_ns,
                         Timeout("shunt_transfer_options.timeout_ns", o.timeout_ns));
  posting.deadline_ns = shunt::client::DeadlineNs(timeout_ns);
  return posting;
}

absl::Status CheckTransfer(const shunt_transfer* transfer) {
  if (transfer == nullptr) return absl::InvalidArgumentError("transfer is null");
  return transfer->impl->session().CheckProcess();
}

template <typename Struct>
void SetRoute(const std::string& route, Struct* out) {
  std::memcpy(out->route, route.data(), std::min(route.size(), sizeof(out->route) - 1));
}

}  // namespace

extern "C" {

int shunt_transfer_post(shunt_session* session, shunt_direction direction,
                        const shunt_selection* local, const shunt_selection* remote,
                        const shunt_transfer_options* options, shunt_transfer** transfer) {
  return Guarded([&]() -> int {
    if (transfer == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "transfer is null");
    *transfer = nullptr;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    const auto posting = ReadPosting(*session, direction, local, remote, options);
    if (!posting.ok()) return Fail(posting.status());
    auto handle = std::make_unique<shunt_transfer>();
    auto started = session->impl->transfers().Start(*posting);
    if (!started.ok()) return Fail(started.status());
    handle->impl = *std::move(started);
    *transfer = handle.release();
    return SHUNT_OK;
  });
}

int shunt_transfer_poll(shunt_transfer* transfer, int* done) {
  return Guarded([&]() -> int {
    if (done == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "done is null");
    *done = 0;
    if (absl::Status s = CheckTransfer(transfer); !s.ok()) return Fail(s);
    if (!transfer->impl->Poll()) return SHUNT_OK;
    *done = 1;
    return Result(transfer->impl->Outcome());
  });
}

int shunt_transfer_wait(shunt_transfer* transfer, int64_t timeout_ns) {
  return Guarded([&]() -> int {
    if (absl::Status s = CheckTransfer(transfer); !s.ok()) return Fail(s);
    const auto timeout = Timeout("timeout_ns", timeout_ns);
    if (!timeout.ok()) return Fail(timeout.status());
    if (!transfer->impl->Wait(shunt::client::DeadlineNs(*timeout))) {
      return Fail(absl::StatusCode::kDeadlineExceeded,
                  absl::StrCat(transfer->impl->Describe(), " has not ended within ",
                               *timeout / 1'000'000, " ms; it is still running"));
    }
    return Result(transfer->impl->Outcome());
  });
}

int shunt_transfer_fd(shunt_transfer* transfer, int* fd) {
  return Guarded([&]() -> int {
    if (fd == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "fd is null");
    *fd = -1;
    if (absl::Status s = CheckTransfer(transfer); !s.ok()) return Fail(s);
    const auto event = transfer->impl->EventFd();
    if (!event.ok()) return Fail(event.status());
    *fd = *event;
    return SHUNT_OK;
  });
}

int shunt_transfer_cancel(shunt_transfer* transfer) {
  return Guarded([&]() -> int {
    absl::Status status = CheckTransfer(transfer);
    if (status.ok()) status = transfer->impl->Cancel();
    return Result(status);
  });
}

int shunt_transfer_report(shunt_transfer* transfer, shunt_report* report) {
  return Guarded([&]() -> int {
    if (report == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "report is null");
    if (absl::Status s = CheckTransfer(transfer); !s.ok()) return Fail(s);
    const auto reported = transfer->impl->Report();
    if (!reported.ok()) return Fail(reported.status());
    shunt_report r{};
    r.bytes = reported->bytes;
    r.waited_ns = reported->waited_ns;
    r.moved_ns = reported->moved_ns;
    SetRoute(reported->route, &r);
    return Result(FillStruct("shunt_report", r, report));
  });
}

void shunt_transfer_release(shunt_transfer* transfer) {
  Guarded([&] {
    if (transfer == nullptr) return 0;
    if (!transfer->impl->session().InForkedChild()) transfer->impl->Wait(shunt::kNeverNs);
    delete transfer;
    return 0;
  });
}

int shunt_transfer_explain(shunt_session* session, shunt_direction direction,
                           const shunt_selection* local, const shunt_selection* remote,
                           const shunt_transfer_options* options, shunt_explanation* explanation) {
  return Guarded([&]() -> int {
    if (explanation == nullptr) {
      return Fail(absl::StatusCode::kInvalidArgument, "explanation is null");
    }
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    const auto posting = ReadPosting(*session, direction, local, remote, options);
    if (!posting.ok()) return Fail(posting.status());
    const auto explained = session->impl->transfers().Explain(*posting);
    if (!explained.ok()) return Fail(explained.status());
    shunt_explanation e{};
    e.bytes = explained->bytes;
    e.copy_runs = explained->copy_runs;
    e.predicted_ns = explained->predicted_ns;
    e.bytes_ahead = explained->bytes_ahead;
    SetRoute(explained->route, &e);
    return Result(FillStruct("shunt_explanation", e, explanation));
  });
}

}  // extern "C"
