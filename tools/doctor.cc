#include "tools/doctor.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "daemon/version.h"
#include "runtime/core/fd.h"
#include "runtime/core/unix_socket.h"
#include "tools/output.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace shunt::tools {
namespace {

using Result = Check::Result;

constexpr char kDeniedAdvice[] =
    "run as a user that may write to the socket, or set the daemon's socket_mode, e.g. \"0666\"";

Check SocketFile(const char* name, const std::string& path) {
  Check check{name, Result::kOk, path, ""};
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const bool denied = errno == EACCES;
    check.result = Result::kFailed;
    check.seen = absl::StrCat(path, ": ", std::strerror(errno));
    check.advice = denied ? "this user may not look into the socket's directory"
                          : "start shuntd, or name its socket with --socket or $SHUNT_SOCKET";
  } else if (!S_ISSOCK(info.st_mode)) {
    check.result = Result::kFailed;
    check.seen = absl::StrCat(path, " is no socket");
    check.advice = "remove the file, or give the daemon another path";
  } else if (::access(path.c_str(), W_OK) != 0) {
    check.result = Result::kFailed;
    check.seen = absl::StrCat(path, ": this user may not write to it");
    check.advice = kDeniedAdvice;
  }
  return check;
}

Check LeaseSocket(const std::string& path) {
  Check check{"lease socket accepts", Result::kOk, path, ""};
  const absl::StatusOr<UniqueFd> fd =
      ConnectUnix(path, SocketType::kSeqPacket, std::chrono::seconds(5));
  if (!fd.ok()) {
    check.result = Result::kFailed;
    check.seen = std::string(fd.status().message());
    check.advice = absl::IsPermissionDenied(fd.status())
                       ? kDeniedAdvice
                       : "start shuntd, or restart it: both its sockets must be there";
  }
  return check;
}

Check MemoryFiles() {
  Check check{"sealed memory files", Result::kOk, "memfd_create and seals work", ""};
  const absl::StatusOr<UniqueFd> fd = MakeSealedMemfd("shuntctl-doctor", 4096);
  if (!fd.ok()) {
    check.result = Result::kFailed;
    check.seen = std::string(fd.status().message());
    check.advice = "Shunt needs Linux 3.17 or later and a seccomp filter that allows memfd_create";
  }
  return check;
}

Check PeerPidfd() {
  Check check{"peer's pidfd", Result::kOk, "the kernel names the process at a socket's other end",
              ""};
  const auto pair = MakeSocketPair(SocketType::kStream);
  int fd = -1;
  socklen_t length = sizeof(fd);
  if (!pair.ok() || ::getsockopt(pair->first.get(), SOL_SOCKET, SO_PEERPIDFD, &fd, &length) != 0) {
    check.result = Result::kWarning;
    check.seen = "SO_PEERPIDFD is not there (Linux 6.5)";
    check.advice =
        "fine on the host; across PID namespaces a death is seen by the closed lease socket only";
  } else {
    ::close(fd);
  }
  return check;
}

Check Descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  Check check{"descriptor limit", Result::kOk,
              absl::StrCat(limit.rlim_cur, " (hard ", limit.rlim_max, ")"), ""};
  if (limit.rlim_max < 4096) {
    check.result = Result::kWarning;
    check.advice =
        "a session takes some 5 descriptors in the daemon, a region 1: raise LimitNOFILE";
  }
  return check;
}

// `total`: the machine's memory, as the daemon and `shuntctl topology` see it.
Check Memory(const v1::GetStatusResponse& status, uint64_t total) {
  Check check{
      "memory limit", Result::kOk,
      absl::StrCat(SizeText(status.region_bytes()), " of ", SizeText(status.memory_limit_bytes()),
                   " in use; the machine has ", SizeText(total)),
      ""};
  if (status.memory_limit_bytes() > total) {
    check.result = Result::kWarning;
    check.advice = "memory_total is more than the machine has";
  } else if (status.region_bytes() > status.memory_limit_bytes() / 10 * 9) {
    check.result = Result::kWarning;
    check.advice = "nearly full: raise memory_total, or see `shuntctl sessions` for who holds it";
  }
  return check;
}

Check HugePages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string line;
  std::getline(in, line);
  Check check{"huge pages for shared memory", Result::kOk, line.empty() ? "unknown" : line, ""};
  if (line.find("[never]") != std::string::npos) {
    check.result = Result::kWarning;
    check.advice =
        "works as it is; large regions take fewer page faults after: "
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
  }
  return check;
}

Check Kernel() {
  utsname name{};
  ::uname(&name);
  return {"kernel", Result::kOk, absl::StrCat(name.sysname, " ", name.release, " ", name.machine),
          ""};
}

}  // namespace

std::vector<Check> Diagnose(AdminClient* client, const std::string& socket) {
  std::vector<Check> checks;
  checks.push_back(SocketFile("gRPC socket", socket));
  checks.push_back(SocketFile("lease socket", socket + ".lease"));
  checks.push_back(LeaseSocket(socket + ".lease"));
  const absl::StatusOr<v1::GetStatusResponse> status = client->Status();
  if (status.ok()) {
    checks.push_back(
        {"daemon answers", Result::kOk,
         absl::StrCat("pid ", status->pid(), ", up ", AgeText(status->uptime_seconds())), ""});
    Check version{"version", Result::kOk, status->version(), ""};
    if (status->version() != daemon::kVersion) {
      version.result = Result::kWarning;
      version.seen = absl::StrCat("daemon ", status->version(), ", shuntctl ", daemon::kVersion);
      version.advice = "neighbouring versions work together; restart the daemon after an upgrade";
    }
    checks.push_back(version);
    if (status->stopping()) {
      checks.push_back({"stopping", Result::kWarning, "the daemon was asked to stop",
                        "it takes no new sessions"});
    }
    if (const auto topology = client->Topology(); topology.ok()) {
      checks.push_back(Memory(*status, topology->memory_bytes()));
    }
  } else {
    checks.push_back(
        {"daemon answers", Result::kFailed, std::string(status.status().message()), ""});
  }
  checks.push_back(Kernel());
  checks.push_back(MemoryFiles());
  checks.push_back(PeerPidfd());
  checks.push_back(Descriptors());
  checks.push_back(HugePages());
  return checks;
}

}  // namespace shunt::tools
