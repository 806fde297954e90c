// A shuntd of the benchmark's own, and programs that lie beside the running one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/harness/net_cluster.h"

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
  // `socket` empty: starts the shuntd beside the running program, with `flags` too, and waits until
  // it takes connections.
  static absl::StatusOr<std::unique_ptr<DaemonUnderTest>> Start(
      const std::string& socket, const std::vector<std::string>& flags = {});
  // One on a node of a cluster, configured as its member. Returns at once: the others may have to
  // be there before it takes connections. AwaitReady follows.
  static absl::StatusOr<std::unique_ptr<DaemonUnderTest>> SpawnOn(NetCluster* cluster, int node);
  // Until it takes connections. UNAVAILABLE if it ended instead; its words are on stderr.
  absl::Status AwaitReady();
  ~DaemonUnderTest();
  DaemonUnderTest(const DaemonUnderTest&) = delete;
  DaemonUnderTest& operator=(const DaemonUnderTest&) = delete;

  const std::string& socket() const { return socket_; }
  // Also of a daemon that somebody else started.
  pid_t pid() const { return pid_; }

 private:
  DaemonUnderTest() = default;
  static absl::StatusOr<std::unique_ptr<DaemonUnderTest>> Spawn(
      const std::function<absl::StatusOr<std::vector<std::string>>(const std::string& directory)>&
          flags,
      int network);

  std::unique_ptr<TemporaryDirectory> directory_;
  std::string socket_;
  pid_t pid_ = 0;
  std::string where_;  // for messages
  bool owned_ = false;
};

// The daemons that a benchmark's ranks talk to: one for each node.
class Daemons {
 public:
  // `cluster` null: one daemon, as DaemonUnderTest::Start. Otherwise one on each node (aggregators
  // too), all ready.
  static absl::StatusOr<std::unique_ptr<Daemons>> Start(NetCluster* cluster,
                                                        const std::string& socket,
                                                        const std::vector<std::string>& flags = {});

  const DaemonUnderTest& operator[](int node) const { return *all_[static_cast<size_t>(node)]; }

 private:
  std::vector<std::unique_ptr<DaemonUnderTest>> all_;
};

}  // namespace shunt::bench
