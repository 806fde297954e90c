#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/core/fd.h"
#include "runtime/core/unix_socket.h"
#include "tools/doctor.h"
#include "tools/output.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace shunt::tools {
namespace {

namespace fs = std::filesystem;
using Result = Check::Result;

constexpr uint64_t kUnlimited = UINT64_MAX;

std::string Line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Check Ok(const char* name, std::string seen) {
  return {name, Result::kOk, std::move(seen), "", ""};
}

Check Bad(const char* name, Result result, std::string seen, std::string cost, std::string advice) {
  return {name, result, std::move(seen), std::move(cost), std::move(advice)};
}

Check Kernel() {
  utsname name{};
  ::uname(&name);
  return Ok("kernel", absl::StrCat(name.sysname, " ", name.release, " ", name.machine));
}

Check MemoryFiles() {
  const absl::StatusOr<UniqueFd> fd = MakeSealedMemfd("shuntctl-doctor", 4096);
  if (fd.ok()) return Ok("sealed memory files", "memfd_create and seals work");
  return Bad("sealed memory files", Result::kFailed, std::string(fd.status().message()),
             "no shared memory, so no session with regions",
             "Linux 3.17 or later, and a seccomp filter that allows memfd_create");
}

Check Pidfd() {
  const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (fd.valid()) return Ok("pidfd", "pidfd_open works");
  return Bad(
      "pidfd", Result::kWarning, absl::StrCat("pidfd_open: ", std::strerror(errno)),
      "a client's death is seen by its closed connection only, and gRPC clients get no session",
      "Linux 5.3 or later, and a seccomp filter that allows pidfd_open");
}

Check PeerPidfd() {
  const auto pair = MakeSocketPair(SocketType::kStream);
  int fd = -1;
  socklen_t length = sizeof(fd);
  if (pair.ok() && ::getsockopt(pair->first.get(), SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) {
    ::close(fd);
    return Ok("peer's pidfd", "the kernel names the process at a socket's other end");
  }
  return Bad(
      "peer's pidfd", Result::kWarning, "SO_PEERPIDFD is not there",
      "none on the host; across PID namespaces a death is seen by the closed lease socket only",
      "Linux 6.5 or later for pods with PID namespaces of their own");
}

// "Max locked memory  8388608  8388608  bytes" of /proc/PID/limits, the soft limit; of this process
// where the daemon's cannot be read.
struct Limit {
  uint64_t value = 0;
  const char* whose = "this process";
};

Limit LimitOf(int32_t pid, int resource, const char* name) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/limits"));
  for (std::string line; pid != 0 && std::getline(in, line);) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(std::strlen(name)), ' ', absl::SkipEmpty());
    uint64_t value = kUnlimited;
    if (!words.empty() && words[0] != "unlimited" && !absl::SimpleAtoi(words[0], &value)) break;
    return {value, "the daemon"};
  }
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  return {limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur, "this process"};
}

Check Descriptors(int32_t pid) {
  const Limit limit = LimitOf(pid, RLIMIT_NOFILE, "Max open files");
  const std::string seen = absl::StrCat(limit.value, ", of ", limit.whose);
  if (limit.value >= 4096) return Ok("descriptor limit", seen);
  return Bad(
      "descriptor limit", Result::kWarning, seen,
      "a session takes some 5 descriptors in the daemon and a region 1: further ones are refused",
      "LimitNOFILE= of the unit, or ulimit -n of who starts shuntd: 65536");
}

Check LockedMemory(int32_t pid, bool rdma) {
  const Limit limit = LimitOf(pid, RLIMIT_MEMLOCK, "Max locked memory");
  const std::string seen = absl::StrCat(
      limit.value == kUnlimited ? "unlimited" : SizeText(limit.value), ", of ", limit.whose);
  if (limit.value == kUnlimited || !rdma) return Ok("locked memory limit", seen);
  return Bad(
      "locked memory limit", Result::kWarning, seen,
      "RDMA registers memory by locking it: transport = \"rdma\" fails where this is used up",
      "LimitMEMLOCK=infinity of the unit; in Kubernetes the capability IPC_LOCK");
}

Check IoUring() {
  io_uring_params params{};
  const UniqueFd fd(static_cast<int>(::syscall(SYS_io_uring_setup, 2, &params)));
  if (fd.valid()) return Ok("io_uring", "allowed");
  const int error = errno;
  const std::string switched = Line("/proc/sys/kernel/io_uring_disabled");
  std::string seen = absl::StrCat("io_uring_setup: ", std::strerror(error));
  if (!switched.empty() && switched != "0") {
    absl::StrAppend(&seen, ", kernel.io_uring_disabled = ", switched);
  }
  return Bad("io_uring", Result::kWarning, seen,
             "transfers with files use threads that block: more CPU, and less at a time",
             switched != "0" && !switched.empty()
                 ? "sysctl kernel.io_uring_disabled=0, or 1 and io_uring_group"
                 : "a seccomp profile that allows io_uring_setup, _enter and _register");
}

Check HugePages() {
  const std::string line = Line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  if (line.find("[never]") == std::string::npos) {
    return Ok("huge pages for shared memory", line.empty() ? "unknown" : line);
  }
  return Bad("huge pages for shared memory", Result::kWarning, line,
             "large regions take more page faults when they are first touched; nothing else",
             "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

Check SharedMemory() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) {
    return Ok("/dev/shm",
              absl::StrCat(std::strerror(errno), "; Shunt needs none: its memory has no names"));
  }
  return Ok("/dev/shm", absl::StrCat(SizeText(uint64_t{info.f_blocks} * info.f_frsize),
                                     "; Shunt needs none: its memory has no names"));
}

Check Rdma(bool cards, bool* usable) {
  *usable = false;
  std::error_code error;
  std::string denied;
  for (fs::directory_iterator it("/dev/infiniband", error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().string();
    if (!absl::StartsWith(it->path().filename().string(), "uverbs")) continue;
    if (::access(path.c_str(), R_OK | W_OK) == 0) {
      *usable = true;
    } else {
      denied = absl::StrCat(path, ": ", std::strerror(errno));
    }
  }
  if (*usable) return Ok("RDMA devices", "there, and open to this user");
  if (!cards && denied.empty()) return Ok("RDMA devices", "none; payload goes over TCP");
  return Bad("RDMA devices", Result::kWarning,
             denied.empty() ? "cards with RDMA, but no /dev/infiniband/uverbs*" : denied,
             "payload goes over TCP; transport = \"rdma\" does not start",
             InContainer() ? "give the container /dev/infiniband (a device plugin, or --device)"
                           : "modprobe ib_uverbs; rights on /dev/infiniband for the daemon's user");
}

Check GpuDriver(const v1::GetTopologyResponse& machine) {
  const std::string version = Line("/proc/driver/nvidia/version");
  const bool device = Exists("/dev/nvidiactl");
  if (machine.gpus().empty() && version.empty() && !device) {
    return Ok("GPU driver", "no NVIDIA GPU is seen");
  }
  if (!version.empty() && device && ::access("/dev/nvidiactl", R_OK | W_OK) == 0) {
    return Ok("GPU driver", version);
  }
  const std::string seen =
      version.empty()
          ? absl::StrCat(machine.gpus_size(), " NVIDIA GPUs, but no driver")
          : absl::StrCat("/dev/nvidiactl: ", device ? "this user may not open it" : "not there");
  return Bad("GPU driver", Result::kWarning, seen,
             "GPU memory cannot be used; host memory is not concerned",
             InContainer()
                 ? "start the container with the NVIDIA runtime or device plugin"
                 : "install NVIDIA's driver, and let the daemon's user open /dev/nvidia*");
}

// The group of cgroup v2 that a process is in, as a directory; "" if there is none.
std::string Cgroup(const std::string& pid) {
  std::ifstream in("/proc/" + pid + "/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (!absl::StartsWith(line, "0::")) continue;
    const std::string path = "/sys/fs/cgroup" + line.substr(3);
    return Exists(path + "/cgroup.controllers") ? path : "/sys/fs/cgroup";
  }
  return "";
}

// The tightest of a group and those above it, of a file that has a number or "max".
uint64_t Tightest(std::string group, const char* file) {
  uint64_t least = kUnlimited;
  while (absl::StartsWith(group, "/sys/fs/cgroup")) {
    uint64_t value = 0;
    if (absl::SimpleAtoi(Line(absl::StrCat(group, "/", file)), &value)) {
      least = std::min(least, value);
    }
    group.resize(group.rfind('/'));
  }
  return least;
}

Check Cgroups(int32_t pid) {
  const std::string group = Cgroup("self");
  if (group.empty()) return Ok("cgroup limits", "no cgroup v2 here");
  const uint64_t memory = Tightest(group, "memory.max");
  std::string seen = absl::StrCat("memory of this process: ",
                                  memory == kUnlimited ? "no limit" : SizeText(memory));
  const std::string theirs = pid != 0 ? Cgroup(absl::StrCat(pid)) : "";
  const uint64_t tasks = theirs.empty() ? kUnlimited : Tightest(theirs, "pids.max");
  if (tasks != kUnlimited) absl::StrAppend(&seen, "; threads of the daemon: ", tasks);
  if (memory < (uint64_t{1} << 30)) {
    return Bad(
        "cgroup limits", Result::kWarning, seen,
        "shared memory counts against who touches it first: a job in this group is killed when "
        "its regions exceed the limit",
        "raise memory.max (in Kubernetes: resources.limits.memory)");
  }
  if (tasks < 256) {
    return Bad("cgroup limits", Result::kWarning, seen,
               "the daemon may get no thread for a store or for gRPC",
               "raise TasksMax= of its unit");
  }
  return Ok("cgroup limits", seen);
}

std::string SeccompMode() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (absl::StartsWith(line, "Seccomp:")) return line.back() == '2' ? "a filter" : "none";
  }
  return "unknown";
}

// What is particular to a pod: the socket must come in by a mount, the filter must let calls
// through (each is tried above).
Check Container(int32_t pid, bool sees) {
  if (!InContainer()) return Ok("container", "none");
  std::string seen = absl::StrCat(
      std::getenv("KUBERNETES_SERVICE_HOST") != nullptr ? "a pod of Kubernetes" : "a container",
      ", seccomp: ", SeccompMode());
  if (pid == 0) {
    return Bad(
        "container", Result::kWarning, absl::StrCat(seen, "; no daemon answers"),
        "clients in here find no daemon",
        "mount the directory of the node's socket (hostPath /run/shunt, type Directory), and "
        "run as a user or group that may write to the socket");
  }
  absl::StrAppend(&seen, sees || pid < 0 ? "" : "; the daemon is in another PID namespace");
  return Ok("container", seen);
}

}  // namespace

bool InContainer() {
  return std::getenv("KUBERNETES_SERVICE_HOST") != nullptr || Exists("/.dockerenv") ||
         Exists("/run/.containerenv") || Exists("/run/secrets/kubernetes.io");
}

void AddMachine(int32_t pid, const v1::GetTopologyResponse& machine, std::vector<Check>* checks) {
  bool cards = Exists("/sys/class/infiniband");
  for (const v1::Nic& nic : machine.nics()) cards = cards || !nic.rdma_device().empty();
  std::error_code ignored;
  if (cards && fs::is_empty("/sys/class/infiniband", ignored) && !ignored) cards = false;
  bool rdma = false;
  checks->push_back(Kernel());
  checks->push_back(MemoryFiles());
  checks->push_back(Pidfd());
  checks->push_back(PeerPidfd());
  // Its number is another process's where it has a PID namespace of its own.
  const int32_t seen = pid > 0 && Line(absl::StrCat("/proc/", pid, "/comm")) == "shuntd" ? pid : 0;
  checks->push_back(Descriptors(seen));
  Check devices = Rdma(cards, &rdma);
  checks->push_back(LockedMemory(seen, rdma));
  checks->push_back(std::move(devices));
  checks->push_back(GpuDriver(machine));
  checks->push_back(IoUring());
  checks->push_back(SharedMemory());
  checks->push_back(HugePages());
  checks->push_back(Cgroups(seen));
  checks->push_back(Container(pid, seen != 0));
}

}  // namespace shunt::tools
