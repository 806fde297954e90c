#include "runtime/core/status.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <memory>
#include <string>

namespace shunt {
namespace {

TEST_CASE("an errno status says what was tried, the words and the name") {
  const absl::Status status = ErrnoStatus(ENOENT, "opening /x");
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(status.message() == "opening /x: No such file or directory (ENOENT)");
}

TEST_CASE("an unknown errno is still an error") {
  const absl::Status status = ErrnoStatus(4242, "x");
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), Catch::Contains("4242"));
}

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::OutOfRangeError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Double(int value) {
  SHUNT_ASSIGN_OR_RETURN(const std::unique_ptr<int> made, Make(value));
  SHUNT_ASSIGN_OR_RETURN(auto again, Make(value));  // two in one scope
  return *made + *again;
}

absl::Status OnlyFirst(int* calls, absl::Status first) {
  const auto call = [&](absl::Status s) {
    ++*calls;
    return s;
  };
  SHUNT_RETURN_IF_ERROR(call(std::move(first)));
  SHUNT_RETURN_IF_ERROR(call(absl::OkStatus()));
  return absl::OkStatus();
}

TEST_CASE("assign-or-return moves the value out or hands the error on") {
  CHECK(*Double(4) == 8);
  CHECK(Double(-1).status() == absl::OutOfRangeError("negative"));
}

TEST_CASE("return-if-error stops at the first error and evaluates once") {
  int calls = 0;
  CHECK(OnlyFirst(&calls, absl::AbortedError("a")) == absl::AbortedError("a"));
  CHECK(calls == 1);
  CHECK(OnlyFirst(&calls, absl::OkStatus()).ok());
  CHECK(calls == 3);
}

TEST_CASE("a failed check prints its condition and aborts") {
  int out[2];
  REQUIRE(::pipe(out) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);
    ::dup2(out[1], STDERR_FILENO);
    SHUNT_CHECK(1 + 1 == 3);
    ::_exit(0);
  }
  ::close(out[1]);
  std::string text(4096, '\0');
  const ssize_t got = ::read(out[0], text.data(), text.size());
  ::close(out[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  REQUIRE(got > 0);
  text.resize(static_cast<size_t>(got));
  CHECK_THAT(text, Catch::Contains("1 + 1 == 3") && Catch::Contains("status_test.cc"));
}

}  // namespace
}  // namespace shunt
