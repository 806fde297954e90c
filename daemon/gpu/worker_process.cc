#include "daemon/gpu/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr int kFirstFd = 3;
// Copies of what is passed lie above what it is passed as.
constexpr int kCopiesFrom = 32;
constexpr size_t kLineMax = 1024;
constexpr size_t kOutputMax = 1 << 20;

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "creating a pipe");
  std::pair<UniqueFd, UniqueFd> pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "setting up a pipe");
  return pipe;
}

bool Passes(std::string_view name) {
  for (const char* const prefix : {"CUDA_", "NVIDIA_", "SHUNT_", "LC_"}) {
    if (absl::StartsWith(absl::string_view(name.data(), name.size()), prefix)) return true;
  }
  for (const std::string_view exact :
       {"PATH", "LD_LIBRARY_PATH", "LANG", "TZ", "TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS",
        "TSAN_OPTIONS", "LSAN_OPTIONS"}) {
    if (name == exact) return true;
  }
  return false;
}

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

class Attributes {
 public:
  Attributes() {
    ::posix_spawnattr_init(&attributes_);
    sigset_t set;
    ::sigemptyset(&set);
    ::posix_spawnattr_setsigmask(&attributes_, &set);
    ::sigfillset(&set);
    ::posix_spawnattr_setsigdefault(&attributes_, &set);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~Attributes() { ::posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  posix_spawnattr_t* get() { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<std::string> WorkerEnvironment(const char* const* environment, bool use_mps) {
  std::vector<std::string> out;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!Passes(name) || name == "CUDA_MODULE_LOADING") continue;
    if (!use_mps && name.substr(0, 9) == "CUDA_MPS_") continue;
    out.emplace_back(entry);
  }
  // A kernel that is loaded late waits for all that the GPU has to do.
  out.emplace_back("CUDA_MODULE_LOADING=EAGER");
  // Else a server at the usual place would be used.
  if (!use_mps) out.emplace_back("CUDA_MPS_PIPE_DIRECTORY=/nonexistent");
  return out;
}

std::string ProgramBesideThis(const std::string& name) {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (self.parent_path() / name).string();
}

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(EventLoop* loop,
                                                                    const Options& options,
                                                                    Line line, Ended ended) {
  std::unique_ptr<WorkerProcess> process(new WorkerProcess(loop));
  process->line_ = std::move(line);
  process->ended_ = std::move(ended);
  SHUNT_RETURN_IF_ERROR(process->Spawn(options));
  WorkerProcess* const self = process.get();
  SHUNT_ASSIGN_OR_RETURN(
      process->out_watch_,
      loop->Watch(process->out_.get(), EPOLLIN, [self](uint32_t) { self->ReadOutput(); }));
  SHUNT_ASSIGN_OR_RETURN(process->err_watch_, loop->Watch(process->err_.get(), EPOLLIN,
                                                          [self](uint32_t) { self->ReadLines(); }));
  SHUNT_ASSIGN_OR_RETURN(process->watch_, loop->Watch(process->pidfd_.get(), EPOLLIN,
                                                      [self](uint32_t) { self->OnEnd(); }));
  return process;
}

absl::Status WorkerProcess::Spawn(const Options& options) {
  SHUNT_ASSIGN_OR_RETURN(auto out, MakePipe());
  SHUNT_ASSIGN_OR_RETURN(auto err, MakePipe());
  FileActions actions;
  std::vector<UniqueFd> copies;
  const auto pass = [&](int fd, int as) -> absl::Status {
    // Above every number that is passed: none of them is overwritten before it is.
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kCopiesFrom));
    if (!copy.valid()) return ErrnoStatus(errno, "copying a descriptor for a worker");
    ::posix_spawn_file_actions_adddup2(actions.get(), copy.get(), as);
    copies.push_back(std::move(copy));
    return absl::OkStatus();
  };
  ::posix_spawn_file_actions_addopen(actions.get(), 0, "/dev/null", O_RDONLY, 0);
  SHUNT_RETURN_IF_ERROR(pass(out.second.get(), 1));
  SHUNT_RETURN_IF_ERROR(pass(err.second.get(), 2));
  int next = kFirstFd;
  for (const int fd : options.fds) SHUNT_RETURN_IF_ERROR(pass(fd, next++));
  ::posix_spawn_file_actions_addclosefrom_np(actions.get(), next);

  std::vector<std::string> arguments = {options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = WorkerEnvironment(environ, options.use_mps);
  Attributes attributes;
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, options.program.c_str(), actions.get(), attributes.get(),
                                  Pointers(arguments).data(), Pointers(environment).data());
  if (error != 0) return ErrnoStatus(error, absl::StrCat("starting ", options.program));
  pid_ = pid;
  out_ = std::move(out.first);
  err_ = std::move(err.first);
  SHUNT_ASSIGN_OR_RETURN(pidfd_, OpenPidFd(pid));
  return absl::OkStatus();
}

WorkerProcess::~WorkerProcess() {
  for (const EventLoop::WatchId watch : {watch_, out_watch_, err_watch_}) loop_->Unwatch(watch);
  if (pid_ == 0) return;
  Kill();
  Reap();
}

void WorkerProcess::Kill() {
  if (pid_ != 0) ::kill(pid_, SIGKILL);
}

std::string WorkerProcess::Reap() {
  siginfo_t info{};
  int result;
  do {
    result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  } while (result != 0 && errno == EINTR);
  pid_ = 0;
  if (result != 0) return "has ended";
  if (info.si_code == CLD_EXITED) {
    return absl::StrCat("ended with exit status ", info.si_status);
  }
  return absl::StrCat("was killed by signal ", info.si_status, " (", ::strsignal(info.si_status),
                      ")");
}

void WorkerProcess::OnEnd() {
  loop_->Unwatch(watch_);
  ReadOutput();
  ReadLines();
  if (!partial_.empty()) TakeLine(std::exchange(partial_, {}));
  const std::string how = Reap();
  ended_(how);
}

void WorkerProcess::ReadOutput() {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(out_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) loop_->Unwatch(out_watch_);
    if (got <= 0) return;
    if (output_.size() < kOutputMax) output_.append(buffer.data(), static_cast<size_t>(got));
  }
}

void WorkerProcess::ReadLines() {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(err_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) loop_->Unwatch(err_watch_);
    if (got <= 0) return;
    partial_.append(buffer.data(), static_cast<size_t>(got));
    size_t end;
    while ((end = partial_.find('\n')) != std::string::npos || partial_.size() > kLineMax) {
      const size_t length = std::min(end, kLineMax);
      TakeLine(std::string_view(partial_).substr(0, length));
      partial_.erase(0, end == length ? length + 1 : length);
    }
  }
}

void WorkerProcess::TakeLine(std::string_view line) {
  if (line.empty()) return;
  last_line_ = line;
  if (line_) line_(line);
}

}  // namespace shunt::daemon
