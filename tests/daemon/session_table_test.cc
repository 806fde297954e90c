#include "daemon/session_table.h"

#include <catch2/catch.hpp>

#include "daemon/event_signal.h"

namespace shunt::daemon {
namespace {

std::string_view View(const Token& token) {
  return {reinterpret_cast<const char*>(token.data()), token.size()};
}

TEST_CASE("a token finds its session for its own user only") {
  SessionTable table({});
  const auto session = *table.Open({10, 1000, nullptr}, "name");
  CHECK_FALSE(table.FindByToken(View(session->token), 1000).ok());  // not published yet
  table.Publish(session);
  CHECK(*table.FindByToken(View(session->token), 1000) == session);
  CHECK(table.FindByToken(View(session->token), 1001).status().code() ==
        absl::StatusCode::kPermissionDenied);
  CHECK(table.FindByToken("", 1000).status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(table.FindByToken(View(RandomToken()), 1000).status().code() ==
        absl::StatusCode::kPermissionDenied);
  table.Remove(*session);
  CHECK_FALSE(table.FindByToken(View(session->token), 1000).ok());
  CHECK(table.Find(session->id) == nullptr);
}

TEST_CASE("ids are never used again") {
  SessionTable table({});
  const auto one = *table.Open({}, "");
  table.Remove(*one);
  CHECK((*table.Open({}, ""))->id == one->id + 1);
}

TEST_CASE("limits count all sessions and each user's") {
  SessionTable table({3, 2});
  const auto one = *table.Open({1, 1000, nullptr}, "");
  REQUIRE(table.Open({1, 1000, nullptr}, "").ok());
  const absl::Status tenant = table.Open({1, 1000, nullptr}, "").status();
  CHECK(tenant.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(tenant.message()).find("max_sessions_per_tenant") != std::string::npos);
  REQUIRE(table.Open({1, 2000, nullptr}, "").ok());
  CHECK_FALSE(table.Open({1, 3000, nullptr}, "").ok());
  table.Remove(*one);
  CHECK(table.Open({1, 1000, nullptr}, "").ok());
}

TEST_CASE("long names are cut between characters") {
  SessionTable table({});
  const std::string umlauts = std::string(63, 'a') + "\xc3\xbc" + "b";
  CHECK((*table.Open({}, umlauts))->name == std::string(63, 'a'));
}

TEST_CASE("an operation tells each waiter once, early and late ones") {
  Operation operation(1);
  int calls = 0;
  operation.Wait([&](const absl::Status& status) {
    ++calls;
    CHECK(absl::IsAborted(status));
  });
  const uint64_t cancelled = operation.Wait([&](const absl::Status&) { calls += 100; });
  CHECK(operation.CancelWait(cancelled));
  CHECK_FALSE(operation.CancelWait(cancelled));
  CHECK_FALSE(operation.done());
  operation.Finish(absl::AbortedError("x"));
  operation.Finish(absl::OkStatus());  // too late
  CHECK(calls == 1);
  operation.Wait([&](const absl::Status& status) {
    ++calls;
    CHECK(absl::IsAborted(status));
  });
  CHECK(calls == 2);
}

TEST_CASE("a client's eventfd is signalled without ever blocking") {
  const UniqueFd fd = *MakeEventFd();
  REQUIRE(CheckEventFd(fd.get()).ok());
  SignalClientEventFd(fd.get());
  SignalClientEventFd(fd.get());
  CHECK(DrainEventFd(fd.get()) == 2);
  CHECK(CheckEventFd(0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(CheckEventFd(-1).code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace shunt::daemon
