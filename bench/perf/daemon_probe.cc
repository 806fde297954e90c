#include "bench/perf/daemon_probe.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

// Calls f(name) for the entries of a directory.
template <typename F>
absl::Status EachEntry(const std::string& path, F&& f) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return ErrnoStatus(errno, "cannot open " + path);
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') f(std::string(entry->d_name));
  }
  ::closedir(directory);
  return absl::OkStatus();
}

// Adds the file behind a /proc link to `files` if it is a memory file: inode -> bytes in use.
void AddMemoryFile(const std::string& link, std::map<ino_t, int64_t>* files) {
  char target[256] = {};
  if (::readlink(link.c_str(), target, sizeof(target) - 1) < 0) return;
  if (std::strncmp(target, "/memfd:", 7) != 0 && std::strncmp(target, "/dev/shm/", 9) != 0) return;
  struct stat info {};
  if (::stat(link.c_str(), &info) == 0) (*files)[info.st_ino] = info.st_blocks * int64_t{512};
}

}  // namespace

absl::StatusOr<Holdings> HoldingsOf(pid_t pid) {
  const std::string proc = absl::StrCat("/proc/", pid);
  Holdings held;
  std::FILE* status = std::fopen((proc + "/status").c_str(), "r");
  if (status == nullptr) return ErrnoStatus(errno, "cannot open " + proc + "/status");
  char line[256];
  while (std::fgets(line, sizeof(line), status) != nullptr) {
    if (std::strncmp(line, "VmRSS:", 6) == 0) {
      held.resident_bytes = std::strtoll(line + 6, nullptr, 10) * 1024;
    }
  }
  std::fclose(status);

  std::map<ino_t, int64_t> files;
  SHUNT_RETURN_IF_ERROR(EachEntry(proc + "/fd", [&](const std::string& name) {
    ++held.descriptors;
    AddMemoryFile(proc + "/fd/" + name, &files);
  }));
  SHUNT_RETURN_IF_ERROR(EachEntry(proc + "/map_files", [&](const std::string& name) {
    AddMemoryFile(proc + "/map_files/" + name, &files);
  }));
  for (const auto& [inode, bytes] : files) held.shared_bytes += bytes;
  return held;
}

absl::StatusOr<Holdings> SettledHoldingsOf(pid_t pid) {
  const int64_t deadline = DeadlineAfterNs(std::chrono::seconds(5));
  SHUNT_ASSIGN_OR_RETURN(Holdings before, HoldingsOf(pid));
  while (true) {
    ::usleep(100'000);
    SHUNT_ASSIGN_OR_RETURN(const Holdings now, HoldingsOf(pid));
    if (now.descriptors == before.descriptors || NowNs() > deadline) return now;
    before = now;
  }
}

absl::StatusOr<int64_t> CpuTimeNs(pid_t pid) {
  clockid_t clock;
  timespec time{};
  const int error = ::clock_getcpuclockid(pid, &clock);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("CPU clock of process ", pid));
  if (::clock_gettime(clock, &time) != 0) return ErrnoStatus(errno, "clock_gettime");
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

}  // namespace shunt::bench
