#include "bench/perf/lifecycle.h"

#include <shunt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/harness/job.h"
#include "bench/harness/worker.h"
#include "bench/perf/daemon_probe.h"
#include "bench/perf/shunt_backend.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

int Open(const std::string& socket, shunt_session** session) {
  shunt_open_options options{};
  options.struct_size = sizeof(options);
  options.socket = socket.c_str();
  return shunt_open(&options, session);
}

int Join(shunt_session* session, const std::string& name, int rank, int ranks, shunt_comm** comm) {
  shunt_join_options options{};
  options.struct_size = sizeof(options);
  options.name = name.c_str();
  options.rank = rank;
  options.world_size = ranks;
  return shunt_join(session, &options, comm);
}

// Memory that forked children share with this process.
template <typename T>
class SharedArray {
 public:
  explicit SharedArray(size_t count) : bytes_(count * sizeof(T)) {
    data_ = static_cast<T*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    SHUNT_CHECK(data_ != MAP_FAILED);
  }
  ~SharedArray() { ::munmap(data_, bytes_); }
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;
  T* data() const { return data_; }

 private:
  size_t bytes_;
  T* data_ = nullptr;
};

// A rank process with a session, for benchmarks that join and leave.
int ServeJoins(Control* control, int rank, const std::string& socket,
               const std::function<bool(shunt_session*, const Command&)>& execute) {
  shunt_session* session = nullptr;
  if (Open(socket, &session) != SHUNT_OK) {
    control->Fail(absl::StrCat("rank ", rank, ": shunt_open: ", shunt_last_error()));
    return 1;
  }
  const int code = ServeCommands(control, rank,
                                 [&](const Command& command) { return execute(session, command); });
  shunt_close(session);
  return code;
}

bool FailJoin(Control* control, int rank) {
  control->Fail(absl::StrCat("rank ", rank, ": shunt_join: ", shunt_last_error()));
  return false;
}

std::string UniquePrefix() { return absl::StrCat("perf-", ::getpid()); }

}  // namespace

absl::Status BenchmarkJoin(const PerfOptions& options, const RankHome& home,
                           std::vector<Record>* records) {
  const int64_t count = options.count > 0 ? options.count : 200;
  const int ranks = options.ranks;
  struct Times {
    int64_t called;
    int64_t returned;
  };
  SharedArray<Times> times(static_cast<size_t>(count * ranks));
  const std::string prefix = UniquePrefix();
  const auto main = [&](int rank, Control* control) {
    const absl::Status entered = home.Enter(rank);
    if (!entered.ok()) {
      control->Fail(std::string(entered.message()));
      return 1;
    }
    return ServeJoins(
        control, rank, home.SocketOf(rank), [&](shunt_session* session, const Command& c) {
          const bool warm = c.variant == 1;
          // A warm communicator has been joined before: one unmeasured turn.
          for (int64_t i = warm ? -1 : 0; i < count; ++i) {
            const std::string name = warm ? prefix + "-warm" : absl::StrCat(prefix, "-", i);
            if (!RankBarrier(control)) return false;
            shunt_comm* comm = nullptr;
            const int64_t called = NowNs();
            if (Join(session, name, rank, ranks, &comm) != SHUNT_OK) return FailJoin(control, rank);
            const int64_t returned = NowNs();
            if (i >= 0) times.data()[i * ranks + rank] = {called, returned};
            if (!RankBarrier(control)) return false;
            shunt_leave(comm);
          }
          return RankBarrier(control);
        });
  };
  SHUNT_ASSIGN_OR_RETURN(const auto job, Job::Fork("shunt", ranks, main));
  std::printf("# join, %d ranks, %ld communicators: last rank's call to last rank's return\n",
              ranks, count);
  for (const bool warm : {false, true}) {
    Command command;
    command.variant = warm ? 1 : 0;
    command.blocks = 0;
    command.check = false;
    SHUNT_RETURN_IF_ERROR(job->Run(command).status());
    std::vector<double> each;
    for (int64_t i = 0; i < count; ++i) {
      const Times* row = times.data() + i * ranks;
      int64_t called = row[0].called;
      int64_t returned = row[0].returned;
      for (int r = 1; r < ranks; ++r) {
        called = std::max(called, row[r].called);
        returned = std::max(returned, row[r].returned);
      }
      each.push_back(static_cast<double>(returned - called) / 1e3);
    }
    const double median = Median(each);
    const char* name = warm ? "join_warm" : "join_new";
    std::printf("  %-12s %12.1f us\n", name, median);
    records->push_back(Record()
                           .Set("op", name)
                           .Set("ranks", ranks)
                           .Set("nodes", options.nodes)
                           .Set("time_us", median));
  }
  return job->Stop();
}

absl::Status OpenChild(const std::string& socket) {
  shunt_session* first = nullptr;
  for (int i = 0; i < 6; ++i) {
    shunt_session* session = nullptr;
    const int64_t start = NowNs();
    const int code = Open(socket, &session);
    const int64_t elapsed = NowNs() - start;
    if (code != SHUNT_OK) return ShuntStatus(code, "shunt_open");
    std::printf("%ld\n", elapsed);
    if (i == 0) {
      first = session;
    } else {
      shunt_close(session);
    }
  }
  shunt_close(first);
  return absl::OkStatus();
}

absl::Status BenchmarkOpen(const PerfOptions& options, const DaemonUnderTest& daemon,
                           std::vector<Record>* records) {
  const int64_t count = options.count > 0 ? options.count : 20;
  std::vector<double> first;
  std::vector<double> later;
  for (int64_t i = 0; i < count; ++i) {
    int pipe[2];
    if (::pipe(pipe) != 0) return ErrnoStatus(errno, "pipe");
    const pid_t child = ::fork();
    if (child < 0) return ErrnoStatus(errno, "fork");
    if (child == 0) {
      ::dup2(pipe[1], STDOUT_FILENO);
      ::close(pipe[0]);
      ::close(pipe[1]);
      ::execl("/proc/self/exe", "shunt-perf", "open", "--open-child", "--socket",
              daemon.socket().c_str(), nullptr);
      ::_exit(127);
    }
    ::close(pipe[1]);
    std::FILE* output = ::fdopen(pipe[0], "r");
    double ns = 0;
    for (int line = 0; std::fscanf(output, "%lf", &ns) == 1; ++line) {
      (line == 0 ? first : later).push_back(ns / 1e3);
    }
    std::fclose(output);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0 || later.empty()) {
      return absl::InternalError("a process that opens sessions failed; see above");
    }
  }
  std::printf("# open, %ld processes: median time of shunt_open\n", count);
  for (const auto& [name, values] : {std::pair("open_first", first), {"open_later", later}}) {
    std::printf("  %-12s %12.1f us\n", name, Median(values));
    records->push_back(Record().Set("op", name).Set("nodes", 1).Set("time_us", Median(values)));
  }
  return absl::OkStatus();
}

namespace {

void ReportSoak(const char* name, int64_t count, const Holdings& before, const Holdings& after,
                std::vector<Record>* records) {
  const int64_t memory = after.resident_bytes - before.resident_bytes;
  const int64_t descriptors = after.descriptors - before.descriptors;
  const int64_t shared = after.shared_bytes - before.shared_bytes;
  std::printf("  %-20s %8ld %14ld %12ld %14ld\n", name, count, memory, descriptors, shared);
  std::fflush(stdout);
  records->push_back(Record()
                         .Set("op", name)
                         .Set("nodes", 1)
                         .Set("count", count)
                         .Set("rss_growth_bytes", memory)
                         .Set("fd_growth", descriptors)
                         .Set("shm_growth_bytes", shared)
                         .Set("value", memory));
}

absl::Status SoakCommunicators(const PerfOptions& options, const DaemonUnderTest& daemon,
                               int64_t count, std::vector<Record>* records) {
  const std::string prefix = UniquePrefix();
  const int ranks = options.ranks;
  const auto main = [&](int rank, Control* control) {
    int64_t made = 0;
    return ServeJoins(
        control, rank, daemon.socket(), [&](shunt_session* session, const Command& c) {
          for (int64_t i = 0; i < c.iterations; ++i) {
            shunt_comm* comm = nullptr;
            const std::string name = absl::StrCat(prefix, "-soak-", made++);
            if (Join(session, name, rank, ranks, &comm) != SHUNT_OK) return FailJoin(control, rank);
            if (shunt_barrier(comm, nullptr, nullptr) != SHUNT_OK) {
              control->Fail(absl::StrCat("rank ", rank, ": shunt_barrier: ", shunt_last_error()));
              return false;
            }
            shunt_leave(comm);
          }
          return RankBarrier(control);
        });
  };
  SHUNT_ASSIGN_OR_RETURN(const auto job, Job::Fork("shunt", ranks, main));
  Command command;
  command.blocks = 0;
  command.check = false;
  command.iterations = std::min<int64_t>(100, count);
  SHUNT_RETURN_IF_ERROR(job->Run(command).status());
  SHUNT_ASSIGN_OR_RETURN(const Holdings before, SettledHoldingsOf(daemon.pid()));
  command.iterations = count - command.iterations;
  SHUNT_RETURN_IF_ERROR(job->Run(command, std::chrono::seconds(600)).status());
  SHUNT_ASSIGN_OR_RETURN(const Holdings after, SettledHoldingsOf(daemon.pid()));
  ReportSoak("soak_communicators", count, before, after, records);
  return job->Stop();
}

// In a forked child: everything that a client can hold; then says so and waits to be killed.
[[noreturn]] void LiveUntilKilled(const std::string& socket, const std::string& name, int ready) {
  char state = 'f';
  shunt_session* session = nullptr;
  shunt_comm* comm = nullptr;
  void* memory = nullptr;
  constexpr size_t kBytes = 1 << 20;
  if (Open(socket, &session) == SHUNT_OK && Join(session, name, 0, 1, &comm) == SHUNT_OK &&
      shunt_alloc(session, kBytes, &memory) == SHUNT_OK) {
    std::memset(memory, 1, kBytes);
    state = 'r';
  } else {
    std::fprintf(stderr, "shunt-perf: %s\n", shunt_last_error());
  }
  if (::write(ready, &state, 1) != 1) ::_exit(1);
  while (true) ::pause();
}

absl::Status OpenAndKill(const std::string& socket, const std::string& name) {
  int pipe[2];
  if (::pipe(pipe) != 0) return ErrnoStatus(errno, "pipe");
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "fork");
  if (child == 0) {
    ::close(pipe[0]);
    LiveUntilKilled(socket, name, pipe[1]);
  }
  ::close(pipe[1]);
  char state = 0;
  const ssize_t got = ::read(pipe[0], &state, 1);
  ::close(pipe[0]);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (got != 1 || state != 'r') return absl::InternalError("a session could not be opened");
  return absl::OkStatus();
}

absl::Status SoakSessions(const DaemonUnderTest& daemon, int64_t count,
                          std::vector<Record>* records) {
  const std::string prefix = UniquePrefix();
  Holdings before;
  for (int64_t i = 0; i < count; ++i) {
    if (i == std::min<int64_t>(100, count - 1)) {
      SHUNT_ASSIGN_OR_RETURN(before, SettledHoldingsOf(daemon.pid()));
    }
    SHUNT_RETURN_IF_ERROR(OpenAndKill(daemon.socket(), absl::StrCat(prefix, "-killed-", i)));
  }
  SHUNT_ASSIGN_OR_RETURN(const Holdings after, SettledHoldingsOf(daemon.pid()));
  ReportSoak("soak_sessions", count, before, after, records);
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchmarkSoak(const PerfOptions& options, const DaemonUnderTest& daemon,
                           std::vector<Record>* records) {
  const int64_t count = options.count > 0 ? options.count : 10'000;
  std::printf("# soak: the daemon's growth after the first hundred\n");
  std::printf("# %-20s %8s %14s %12s %14s\n", "what", "count", "memory (B)", "descriptors",
              "shared (B)");
  SHUNT_RETURN_IF_ERROR(SoakCommunicators(options, daemon, count, records));
  return SoakSessions(daemon, std::max<int64_t>(1, count / 10), records);
}

absl::Status BenchmarkIdle(const PerfOptions& options, const DaemonUnderTest& daemon,
                           std::vector<Record>* records) {
  constexpr int kSessions = 4;
  const int64_t seconds = options.count > 0 ? options.count : 10;
  const auto main = [&](int rank, Control* control) {
    return ServeJoins(control, rank, daemon.socket(),
                      [&](shunt_session*, const Command&) { return RankBarrier(control); });
  };
  SHUNT_ASSIGN_OR_RETURN(const auto job, Job::Fork("shunt", kSessions, main));
  ::usleep(200'000);  // what opening set in motion has ended
  SHUNT_ASSIGN_OR_RETURN(const int64_t before, CpuTimeNs(daemon.pid()));
  ::sleep(static_cast<unsigned>(seconds));
  SHUNT_ASSIGN_OR_RETURN(const int64_t after, CpuTimeNs(daemon.pid()));
  const double ms = static_cast<double>(after - before) / 1e6;
  std::printf("# idle: the daemon's CPU time in %ld s with %d open sessions\n", seconds, kSessions);
  std::printf("  %-12s %12.2f ms\n", "idle", ms);
  records->push_back(
      Record().Set("op", "idle").Set("nodes", 1).Set("seconds", seconds).Set("value", ms));
  return job->Stop();
}

}  // namespace shunt::bench
