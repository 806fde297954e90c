#include "client/src/fork_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace shunt::client {
namespace {

struct Target final : ForkTarget {
  int calls = 0;
  void OnForkChild() override { ++calls; }
};

// Runs `body` in a forked child and returns what it returned.
template <typename Body>
int InChild(Body&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("a forked child tells what was registered, once, and nothing else") {
  Target a;
  Target b;
  Target removed;
  {
    ForkGuard guard;
    guard.Add(&a);
    guard.Add(&removed);
    guard.Add(&b);
    guard.Remove(&removed);
  }
  const uint32_t generation = ForkGeneration();
  CHECK(InChild([&] { return a.calls == 1 && b.calls == 1 && removed.calls == 0 ? 0 : 1; }) == 0);
  CHECK(InChild([&] { return ForkGeneration() != generation ? 0 : 1; }) == 0);
  CHECK(a.calls == 0);
  CHECK(ForkGeneration() == generation);
  ForkGuard guard;
  guard.Remove(&a);
  guard.Remove(&b);
  guard.Remove(&b);
}

TEST_CASE("a child may register and remove, and its own children are told") {
  Target parents;
  ForkGuard().Add(&parents);
  CHECK(InChild([&] {
          Target own;
          ForkGuard().Add(&own);
          ForkGuard().Remove(&parents);  // already forgotten
          const pid_t pid = ::fork();
          if (pid == 0) ::_exit(own.calls == 1 && parents.calls == 1 ? 0 : 1);
          int status = 0;
          ::waitpid(pid, &status, 0);
          ForkGuard().Remove(&own);
          return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
        }) == 0);
  ForkGuard().Remove(&parents);
}

}  // namespace
}  // namespace shunt::client
