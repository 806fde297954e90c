#include "bench/harness/private_daemon.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/harness/job.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"

namespace shunt::bench {
namespace {

constexpr std::chrono::seconds kStartTimeout{20};
constexpr std::chrono::seconds kStopTimeout{10};

absl::StatusOr<pid_t> PidBehind(const std::string& socket) {
  SHUNT_ASSIGN_OR_RETURN(
      UniqueFd fd, ConnectUnix(socket + ".lease", SocketType::kSeqPacket, std::chrono::seconds(1)));
  SHUNT_ASSIGN_OR_RETURN(PeerCredentials peer, GetPeerCredentials(fd.get()));
  return peer.pid;
}

}  // namespace

absl::StatusOr<std::string> SiblingProgram(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = self.parent_path() / name;
  if (error || ::access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("no program ", name, " in ", self.parent_path().string()));
  }
  return path.string();
}

absl::StatusOr<std::unique_ptr<TemporaryDirectory>> TemporaryDirectory::Make() {
  std::string path = "/tmp/shunt-bench-XXXXXX";  // short: a socket's path has 107 bytes
  if (::mkdtemp(path.data()) == nullptr) return ErrnoStatus(errno, "mkdtemp " + path);
  return std::unique_ptr<TemporaryDirectory>(new TemporaryDirectory(path));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<std::unique_ptr<DaemonUnderTest>> DaemonUnderTest::Spawn(
    const std::function<absl::StatusOr<std::vector<std::string>>(const std::string& directory)>&
        flags,
    int network) {
  std::unique_ptr<DaemonUnderTest> daemon(new DaemonUnderTest);
  SHUNT_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("shuntd"));
  SHUNT_ASSIGN_OR_RETURN(daemon->directory_, TemporaryDirectory::Make());
  daemon->socket_ = daemon->directory_->path() + "/shuntd.sock";
  SHUNT_ASSIGN_OR_RETURN(const auto more, flags(daemon->directory_->path()));
  std::vector<std::string> arguments = {program, "--socket", daemon->socket_, "--log-level",
                                        "warn"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  SHUNT_ASSIGN_OR_RETURN(daemon->pid_,
                         SpawnProgram(arguments, {.quiet = true, .network = network}));
  daemon->owned_ = true;
  return daemon;
}

absl::StatusOr<std::unique_ptr<DaemonUnderTest>> DaemonUnderTest::Start(
    const std::string& socket, const std::vector<std::string>& flags) {
  if (!socket.empty()) {
    std::unique_ptr<DaemonUnderTest> daemon(new DaemonUnderTest);
    daemon->socket_ = socket;
    SHUNT_ASSIGN_OR_RETURN(daemon->pid_, PidBehind(socket));
    return daemon;
  }
  SHUNT_ASSIGN_OR_RETURN(auto daemon, Spawn([&](const std::string&) { return flags; }, -1));
  SHUNT_RETURN_IF_ERROR(daemon->AwaitReady());
  return daemon;
}

absl::StatusOr<std::unique_ptr<DaemonUnderTest>> DaemonUnderTest::SpawnOn(NetCluster* cluster,
                                                                          int node) {
  const auto flags = [&](const std::string& directory) -> absl::StatusOr<std::vector<std::string>> {
    const std::string config = directory + "/shuntd.toml";
    SHUNT_RETURN_IF_ERROR(cluster->WriteDaemonConfig(node, config));
    return std::vector<std::string>{"--config", config};
  };
  SHUNT_ASSIGN_OR_RETURN(auto daemon,
                         Spawn(flags, cluster->nodes()[static_cast<size_t>(node)].network.get()));
  daemon->where_ = absl::StrCat(" on node ", node);
  return daemon;
}

absl::Status DaemonUnderTest::AwaitReady() {
  const int64_t deadline = DeadlineAfterNs(kStartTimeout);
  while (true) {
    const auto pid = PidBehind(socket_);
    if (pid.ok()) return absl::OkStatus();
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      owned_ = false;
      return absl::UnavailableError(
          absl::StrCat("shuntd", where_, " ended at once, exit code ", WEXITSTATUS(status),
                       where_.empty() ? "" : ": does this build know the keys of [cluster]?"));
    }
    if (NowNs() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("shuntd", where_, " took no connections within ", kStartTimeout.count(),
                       " s: ", pid.status().message()));
    }
    ::usleep(5000);
  }
}

DaemonUnderTest::~DaemonUnderTest() {
  if (!owned_) return;
  ::kill(pid_, SIGTERM);
  const int64_t deadline = DeadlineAfterNs(kStopTimeout);
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (NowNs() > deadline) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    ::usleep(2000);
  }
}

absl::StatusOr<std::unique_ptr<Daemons>> Daemons::Start(NetCluster* cluster,
                                                        const std::string& socket,
                                                        const std::vector<std::string>& flags) {
  auto daemons = std::make_unique<Daemons>();
  if (cluster == nullptr) {
    SHUNT_ASSIGN_OR_RETURN(auto daemon, DaemonUnderTest::Start(socket, flags));
    daemons->all_.push_back(std::move(daemon));
    return daemons;
  }
  for (size_t node = 0; node < cluster->nodes().size(); ++node) {
    SHUNT_ASSIGN_OR_RETURN(auto daemon, DaemonUnderTest::SpawnOn(cluster, static_cast<int>(node)));
    daemons->all_.push_back(std::move(daemon));
  }
  for (const auto& daemon : daemons->all_) SHUNT_RETURN_IF_ERROR(daemon->AwaitReady());
  return daemons;
}

}  // namespace shunt::bench
