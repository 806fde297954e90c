#include "daemon/recorder/process_state.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace shunt::daemon {
namespace {

TEST_CASE("a process is seen stopped, ended and gone") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (;;) ::pause();
  }
  REQUIRE(::kill(child, SIGSTOP) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  CHECK(LookAtProcess(child).state == "T");
  REQUIRE(::kill(child, SIGKILL) == 0);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(LookAtProcess(child).state == "Z");
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(LookAtProcess(child).state == "gone");
}

TEST_CASE("of a process that can't be named nothing is said") {
  CHECK(LookAtProcess(0).state.empty());
  CHECK(LookAtProcess(-5).state.empty());
}

TEST_CASE("a process that runs waits for no file") {
  const ProcessState own = LookAtProcess(::getpid());
  CHECK(own.state == "R");
  CHECK(own.file.empty());
}

}  // namespace
}  // namespace shunt::daemon
