// A server program of the machine (etcd, dnsmasq) as a child of a test.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/core/check.h"

extern char** environ;

namespace shunt::cluster::testing {

// The first of `paths` that can be executed; without one the whole test program is skipped.
inline std::string ProgramOrSkip(const char* what, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  std::printf("skipped: %s is not installed\n", what);
  std::exit(77);
}

class Program {
 public:
  // Its output goes to `log`.
  Program(std::vector<std::string> arguments, const std::string& log) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_CREAT | O_WRONLY | O_APPEND,
                                       0600);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    SHUNT_CHECK(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) == 0);
    ::posix_spawn_file_actions_destroy(&actions);
  }
  Program(const Program&) = delete;
  ~Program() { Kill(); }
  void Signal(int signal) { ::kill(pid_, signal); }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace shunt::cluster::testing
