// Children of the test: what they change of the process ends with them.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "runtime/core/check.h"

namespace shunt::storage::testing {

inline constexpr int kMayNotMount = 77;

inline int ExitCodeInChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  SHUNT_CHECK(child >= 0);
  if (child == 0) ::_exit(body());
  int status = 0;
  SHUNT_CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline bool InChild(const std::function<bool()>& body) {
  return ExitCodeInChild([&] { return body() ? 0 : 1; }) == 0;
}

// Runs `body` where what it mounts is seen by nobody else. Says so and passes if we may not.
inline bool WithOwnMounts(const std::function<int()>& body) {
  const int code = ExitCodeInChild([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      return kMayNotMount;
    }
    return body();
  });
  if (code == kMayNotMount) WARN("not tried: mounting needs root");
  return code == 0 || code == kMayNotMount;
}

// Where a file system of 1 MiB lies at the path.
inline bool WithMount(const std::string& path, unsigned long flags,
                      const std::function<bool()>& body) {
  return WithOwnMounts([&] {
    if (::mount("none", path.c_str(), "tmpfs", flags, "size=1m") != 0) return kMayNotMount;
    return body() ? 0 : 1;
  });
}

}  // namespace shunt::storage::testing
