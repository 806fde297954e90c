// A shuntd of the benchmark's own, and programs that lie beside the running one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shunt::bench {

// The path of a program in the running program's directory. NOT_FOUND names the directory.
absl::StatusOr<std::string> SiblingProgram(const std::string& name);

// A new directory with mode 0700 that the destructor removes with everything in it.
class TemporaryDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryDirectory>> Make();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// The daemon that a benchmark talks to: its own, ended with it, or one that runs already.
class DaemonUnderTest {
 public:
  // `socket` empty: starts the shuntd beside the running program and waits until it takes
  // connections.
  static absl::StatusOr<std::unique_ptr<DaemonUnderTest>> Start(const std::string& socket);
  ~DaemonUnderTest();
  DaemonUnderTest(const DaemonUnderTest&) = delete;
  DaemonUnderTest& operator=(const DaemonUnderTest&) = delete;

  const std::string& socket() const { return socket_; }
  // Also of a daemon that somebody else started.
  pid_t pid() const { return pid_; }

 private:
  DaemonUnderTest() = default;

  std::unique_ptr<TemporaryDirectory> directory_;
  std::string socket_;
  pid_t pid_ = 0;
  bool owned_ = false;
};

}  // namespace shunt::bench
