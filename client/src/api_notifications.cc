// The C interface's notifications.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/deadline.h"
#include "client/src/error.h"
#include "client/src/notifications.h"
#include "client/src/transfer_handles.h"

using shunt::client::CheckSession;
using shunt::client::Fail;
using shunt::client::Guarded;
using shunt::client::Result;
using shunt::client::TextArgument;

namespace {

// What shunt_notifications_take gives: the public part is first, so that its address is the
// whole's.
struct Taken : shunt_notifications {
  std::vector<shunt::client::Notification> owned;
  std::vector<shunt_notification> views;
};

}  // namespace

extern "C" {

int shunt_notify(shunt_session* session, const char* agent, const void* payload, uint64_t bytes) {
  return Guarded([&]() -> int {
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    const auto text = TextArgument("agent", agent);
    if (!text.ok()) return Fail(text.status());
    if (payload == nullptr && bytes != 0) {
      return Fail(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("payload is null, expected ", bytes, " bytes"));
    }
    if (bytes > shunt::ring::kNotificationBytesMax) {
      return Fail(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("the notification has ", bytes, " bytes, expected at most ",
                               shunt::ring::kNotificationBytesMax));
    }
    return Result(session->impl->notifications().Send(
        *text, std::string(static_cast<const char*>(payload), bytes)));
  });
}

int shunt_notifications_take(shunt_session* session, uint32_t max, int64_t timeout_ns,
                             shunt_notifications** notifications) {
  return Guarded([&]() -> int {
    if (notifications == nullptr) {
      return Fail(absl::StatusCode::kInvalidArgument, "notifications is null");
    }
    *notifications = nullptr;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    if (timeout_ns < 0) {
      return Fail(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("timeout_ns is ", timeout_ns, ", expected 0 or more"));
    }
    auto taken = session->impl->notifications().Take(
        max, timeout_ns == 0 ? 0 : shunt::client::DeadlineNs(timeout_ns));
    if (!taken.ok()) return Fail(taken.status());
    auto given = std::make_unique<Taken>();
    given->owned = std::move(taken->notifications);
    for (const auto& n : given->owned) {
      given->views.push_back({n.from.c_str(), n.payload.data(), n.payload.size()});
    }
    given->count = given->views.size();
    given->items = given->views.data();
    given->more = taken->more ? 1 : 0;
    *notifications = given.release();
    return SHUNT_OK;
  });
}

void shunt_notifications_release(shunt_notifications* notifications) {
  delete static_cast<Taken*>(notifications);
}

int shunt_notifications_fd(shunt_session* session, int* fd) {
  return Guarded([&]() -> int {
    if (fd == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "fd is null");
    *fd = -1;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    const auto event = session->impl->notifications().EventFd();
    if (!event.ok()) return Fail(event.status());
    *fd = *event;
    return SHUNT_OK;
  });
}

}  // extern "C"
