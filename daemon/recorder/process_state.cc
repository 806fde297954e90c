#include "daemon/recorder/process_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/core/fd.h"
#include "runtime/core/utf8.h"

namespace shunt::daemon {
namespace {

constexpr int kThreadsMax = 256;  // of a process, that are looked at
constexpr size_t kPathBytesMax = 512;

// Empty if it can't be read. What it reads is the kernel's, which does not wait for anybody.
std::string ReadSmall(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return "";
  char text[1024];
  const ssize_t got = ::read(fd.get(), text, sizeof(text));
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : "";
}

// Behind the name, which may hold anything but ends with the last parenthesis.
char StateIn(const std::string& stat) {
  const size_t end = stat.rfind(") ");
  return end == std::string::npos || end + 2 >= stat.size() ? '\0' : stat[end + 2];
}

struct FileCall {
  long number;
  const char* name;
  bool has_descriptor;  // as its first argument
};
// On x86-64 and arm64 alike, where there is one.
constexpr FileCall kFileCalls[] = {
    {SYS_read, "read", true},           {SYS_write, "write", true},
    {SYS_pread64, "pread", true},       {SYS_pwrite64, "pwrite", true},
    {SYS_readv, "readv", true},         {SYS_writev, "writev", true},
    {SYS_preadv, "preadv", true},       {SYS_pwritev, "pwritev", true},
    {SYS_fsync, "fsync", true},         {SYS_fdatasync, "fdatasync", true},
    {SYS_ftruncate, "ftruncate", true}, {SYS_fallocate, "fallocate", true},
    {SYS_openat, "open", false},        {SYS_copy_file_range, "copy_file_range", true},
};

std::string PathOf(int32_t pid, const std::string& descriptor) {
  char path[kPathBytesMax];
  const std::string link = absl::StrCat("/proc/", pid, "/fd/", descriptor);
  const ssize_t got = ::readlink(link.c_str(), path, sizeof(path));
  return got > 0 ? std::string(path, static_cast<size_t>(got)) : "";
}

// What the kernel does for the thread, where it sleeps.
bool InFileSystem(const std::string& where) {
  for (const char* part : {"fuse", "request_wait", "nfs", "rpc_wait", "ext4", "xfs", "btrfs",
                           "jbd2", "folio_wait", "wait_on_page", "io_schedule", "filemap"}) {
    if (where.find(part) != std::string::npos) return true;
  }
  return false;
}

std::string FileOf(int32_t pid, const std::string& task, char state) {
  const std::string where = ReadSmall(task + "/wchan");
  const bool known = !where.empty() && where != "0";
  const std::string place = known ? absl::StrCat(" (", where, ")") : "";
  long number = -1;
  unsigned long first = 0;
  const std::string call = ReadSmall(task + "/syscall");
  if (std::sscanf(call.c_str(), "%ld 0x%lx", &number, &first) == 2) {
    for (const FileCall& known_call : kFileCalls) {
      if (known_call.number != number) continue;
      if (!known_call.has_descriptor) {
        return state == 'D' || InFileSystem(where) ? absl::StrCat(known_call.name, place) : "";
      }
      const std::string path = PathOf(pid, absl::StrCat(first));
      // Terminals, pipes and sockets are nobody's disk.
      if (path.empty() || path[0] != '/' || path.starts_with("/dev/")) return "";
      return absl::StrCat(known_call.name, " of ", Printable(path), place);
    }
  }
  if (state == 'D' || InFileSystem(where)) {
    return known ? absl::StrCat("in ", where) : "in the kernel";
  }
  return "";
}

}  // namespace

ProcessState LookAtProcess(int32_t pid) {
  ProcessState result;
  if (pid <= 0) return result;
  const std::string root = absl::StrCat("/proc/", pid);
  const std::string stat = ReadSmall(root + "/stat");
  if (stat.empty()) {
    result.state = ::access(root.c_str(), F_OK) == 0 ? "" : "gone";
    return result;
  }
  result.state = std::string(1, StateIn(stat));
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir((root + "/task").c_str()), ::closedir);
  if (tasks == nullptr) return result;
  int looked = 0;
  for (const dirent* entry = ::readdir(tasks.get()); entry != nullptr && looked < kThreadsMax;
       entry = ::readdir(tasks.get())) {
    if (entry->d_name[0] == '.') continue;
    ++looked;
    const std::string task = absl::StrCat(root, "/task/", entry->d_name);
    const char state = StateIn(ReadSmall(task + "/stat"));
    if (state == 'D') result.state = "D";
    if (state != 'S' && state != 'D') continue;
    std::string file = FileOf(pid, task, state);
    if (result.file.empty() || state == 'D') {
      if (!file.empty()) result.file = std::move(file);
    }
  }
  return result;
}

}  // namespace shunt::daemon
