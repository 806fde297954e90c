#include "bench/harness/job.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/futex.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

constexpr std::chrono::seconds kStartTimeout{60};
constexpr std::chrono::seconds kStopTimeout{10};
constexpr std::chrono::milliseconds kPoll{50};

// In the child: die with the driver, also if it died before prctl took effect.
void DieWithParent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
}

std::string HowItEnded(int status) {
  if (WIFEXITED(status)) return absl::StrCat("exited with code ", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(status), " (",
                        ::strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("ended with status ", status);
}

}  // namespace

absl::StatusOr<pid_t> SpawnProgram(const std::vector<std::string>& arguments,
                                   const SpawnOptions& options) {
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoStatus(errno, "fork");
  if (pid > 0) return pid;
  DieWithParent(parent);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDIN_FILENO);
  if (options.quiet) ::dup2(null, STDOUT_FILENO);
  if (options.network >= 0 && ::setns(options.network, CLONE_NEWNET) != 0) {
    ::dprintf(STDERR_FILENO, "cannot run %s on its node: %s\n", argv[0], ::strerror(errno));
    ::_exit(127);
  }
  ::execvp(argv[0], argv.data());
  ::dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], ::strerror(errno));
  ::_exit(127);
}

absl::StatusOr<std::unique_ptr<Job>> Job::Start(std::string name, int ranks, const Spawn& spawn) {
  SHUNT_ASSIGN_OR_RETURN(ControlPage page, ControlPage::Create(ranks));
  std::unique_ptr<Job> job(new Job(std::move(name), std::move(page)));
  SHUNT_ASSIGN_OR_RETURN(job->children_, spawn(job->page_.path()));
  SHUNT_RETURN_IF_ERROR(job->Await(job->control()->attached, static_cast<uint32_t>(ranks),
                                   kStartTimeout, "start all ranks"));
  job->page_.Unlink();
  return job;
}

absl::StatusOr<std::unique_ptr<Job>> Job::Fork(
    std::string name, int ranks, const std::function<int(int rank, Control* control)>& main) {
  return Start(std::move(name), ranks,
               [&](const std::string& path) -> absl::StatusOr<std::vector<pid_t>> {
                 std::vector<pid_t> pids;
                 for (int rank = 0; rank < ranks; ++rank) {
                   const pid_t parent = ::getpid();
                   ::fflush(nullptr);
                   const pid_t pid = ::fork();
                   if (pid < 0) return ErrnoStatus(errno, "fork");
                   if (pid == 0) {
                     DieWithParent(parent);
                     auto page = ControlPage::Attach(path);
                     if (!page.ok()) ::_exit(1);
                     const int code = main(rank, page->get());
                     ::fflush(nullptr);
                     ::_exit(code);  // not exit(): the parent's static objects are not the child's
                   }
                   pids.push_back(pid);
                 }
                 return pids;
               });
}

Job::~Job() { Kill(); }

absl::Status Job::Failure() const {
  const Control& c = *control();
  const std::string words = absl::StrCat(name_, ": ", c.error);
  if (c.unsupported) return absl::UnimplementedError(words);
  return absl::InternalError(words);
}

absl::Status Job::CheckChildren() {
  for (pid_t& pid : children_) {
    int status = 0;
    if (pid > 0 && ::waitpid(pid, &status, WNOHANG) == pid) {
      pid = 0;
      if (control()->failed.load() == 2) return Failure();
      return absl::UnavailableError(
          absl::StrCat(name_, ": a rank process (or its launcher) ", HowItEnded(status)));
    }
  }
  return absl::OkStatus();
}

absl::Status Job::Await(std::atomic<uint32_t>& word, uint32_t value, std::chrono::seconds timeout,
                        const char* what) {
  const int64_t deadline = DeadlineAfterNs(timeout);
  while (true) {
    const uint32_t seen = word.load();
    if (seen == value) return absl::OkStatus();
    if (control()->failed.load() == 2) return Failure();
    SHUNT_RETURN_IF_ERROR(CheckChildren());
    if (NowNs() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(name_, ": did not ", what, " within ", timeout.count(), " s"));
    }
    FutexWait(&word, seen, kPoll);
  }
}

absl::StatusOr<Measurement> Job::Run(const Command& command, std::chrono::seconds timeout) {
  Control& c = *control();
  if (command.blocks < 0 || command.blocks > kMaxBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("blocks is ", command.blocks, ", must be between 0 and ", kMaxBlocks));
  }
  c.command = command;
  c.operations.store(0);
  c.issued.store(++issued_);
  FutexWake(&c.issued);
  SHUNT_RETURN_IF_ERROR(Await(c.finished, issued_, timeout, "finish a measurement"));

  Measurement m;
  m.iterations = c.iterations.load();
  m.operations = c.operations.load();
  std::vector<double> blocks;
  for (int b = 0; b < command.blocks; ++b) {
    const int64_t slowest = *std::max_element(c.elapsed_ns[b], c.elapsed_ns[b] + c.ranks);
    blocks.push_back(static_cast<double>(slowest) / 1e3 / static_cast<double>(m.iterations));
  }
  for (int r = 0; r < c.ranks; ++r) m.wrong += command.check ? c.wrong[r] : 0;
  if (!blocks.empty()) {
    std::nth_element(blocks.begin(), blocks.begin() + blocks.size() / 2, blocks.end());
    m.time_us = blocks[blocks.size() / 2];
  }
  return m;
}

absl::Status Job::Stop() {
  Control& c = *control();
  c.command = Command{};
  c.command.kind = Command::Kind::kExit;
  c.issued.store(++issued_);
  FutexWake(&c.issued);
  const int64_t deadline = DeadlineAfterNs(kStopTimeout);
  absl::Status result;
  for (pid_t& pid : children_) {
    while (pid > 0) {
      int status = 0;
      if (::waitpid(pid, &status, WNOHANG) == pid) {
        pid = 0;
        if (status != 0) {
          result.Update(absl::InternalError(
              absl::StrCat(name_, ": a rank process (or its launcher) ", HowItEnded(status))));
        }
        break;
      }
      if (NowNs() > deadline) {
        Kill();
        return absl::DeadlineExceededError(absl::StrCat(name_, ": ranks did not end; killed"));
      }
      ::usleep(2000);
    }
  }
  return result;
}

void Job::Kill() {
  // A launcher gets the chance to end its ranks; then nobody is asked.
  bool any = false;
  for (pid_t pid : children_) {
    if (pid > 0) {
      ::kill(pid, SIGTERM);
      any = true;
    }
  }
  if (!any) return;
  const int64_t deadline = DeadlineAfterNs(std::chrono::seconds(3));
  for (pid_t& pid : children_) {
    while (pid > 0 && ::waitpid(pid, nullptr, WNOHANG) == 0) {
      if (NowNs() > deadline) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        break;
      }
      ::usleep(2000);
    }
    pid = 0;
  }
}

}  // namespace shunt::bench
