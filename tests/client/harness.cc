#include "tests/client/harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

namespace shunt::testing {

using namespace std::chrono_literals;

void Expect(bool condition, const std::string& words) {
  if (!condition) throw Wrong(words);
}

void ExpectCode(int code, int expected, const std::vector<std::string>& parts) {
  const std::string words = code == SHUNT_OK ? "" : shunt_last_error();
  if (code != expected) {
    throw Wrong(std::string("expected ") + shunt_code_name(expected) + ", got " +
                shunt_code_name(code) + " \"" + words + "\"");
  }
  for (const std::string& part : parts) {
    if (words.find(part) == std::string::npos)
      throw Wrong("no \"" + part + "\" in \"" + words + "\"");
  }
}

// ---- Processes

Process Process::Fork(const std::function<void()>& body) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) throw Wrong("pipe");
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 0;
    try {
      body();
    } catch (const std::exception& e) {
      code = 1;
      (void)!::write(fds[1], e.what(), std::string(e.what()).size());
    }
    ::_exit(code);
  }
  ::close(fds[1]);
  Process process;
  process.pid_ = pid;
  process.words_fd_ = fds[0];
  return process;
}

Process Process::Exec(const std::vector<std::string>& arguments, const std::string& log_file) {
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log = ::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(log, 1);
    ::dup2(log, 2);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  Process process;
  process.pid_ = pid;
  return process;
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(words_fd_, other.words_fd_);
  return *this;
}

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::kill(pid_, SIGCONT);
    ::waitpid(pid_, nullptr, 0);
  }
  if (words_fd_ >= 0) ::close(words_fd_);
}

void Process::Signal(int signal) const { ::kill(pid_, signal); }

int Process::Wait(std::chrono::seconds timeout) {
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  pollfd poll{pidfd, POLLIN, 0};
  const bool ended =
      ::poll(&poll, 1, static_cast<int>(std::chrono::milliseconds(timeout).count())) == 1;
  ::close(pidfd);
  if (!ended) ::kill(pid_, SIGKILL);
  int status = -1;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return ended ? status : -1;
}

void Process::Join(std::chrono::seconds timeout) {
  const int status = Wait(timeout);
  char words[2048];
  const ssize_t n = words_fd_ >= 0 ? ::read(words_fd_, words, sizeof(words)) : 0;
  if (status == 0) return;
  throw Wrong("a process ended with status " + std::to_string(status) + ": " +
              std::string(words, n > 0 ? static_cast<size_t>(n) : 0));
}

// ---- Daemon, sessions, communicators

TestDaemon::TestDaemon(const std::vector<std::string>& flags) : socket_(dir_ / "shuntd.sock") {
  const char* binary = std::getenv("SHUNTD");
  if (binary == nullptr) throw Wrong("$SHUNTD is not set");
  std::vector<std::string> arguments{binary, "--socket", socket_};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  process_ = Process::Exec(arguments, dir_ / "log");
  // There is no signal to wait for on every system: look until the socket answers.
  const auto give_up = std::chrono::steady_clock::now() + 20s;
  shunt_open_options options{};
  options.struct_size = sizeof(options);
  options.socket = socket_.c_str();
  shunt_session* session = nullptr;
  while (shunt_open(&options, &session) != SHUNT_OK) {
    if (std::chrono::steady_clock::now() > give_up) throw Wrong("shuntd does not answer: " + log());
    std::this_thread::sleep_for(1ms);
  }
  shunt_close(session);
}

TestDaemon::~TestDaemon() {
  if (process_.pid() <= 0) return;
  process_.Signal(SIGTERM);
  (void)process_.Wait(20s);
}

std::string TestDaemon::log() const {
  std::ifstream file(dir_ / "log");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void TestDaemon::Kill() {
  process_.Signal(SIGKILL);
  (void)process_.Wait();
}

TestSession::TestSession(const std::string& socket, const std::string& name) {
  shunt_open_options options{};
  options.struct_size = sizeof(options);
  options.socket = socket.c_str();
  options.name = name.c_str();
  ExpectOk(shunt_open(&options, &session_));
}

void* TestSession::Allocate(size_t bytes) const {
  void* data = nullptr;
  ExpectOk(shunt_alloc(session_, bytes, &data));
  return data;
}

TestComm::TestComm(shunt_session* session, const std::string& name, int rank, int world,
                   std::chrono::nanoseconds default_timeout) {
  shunt_join_options options{};
  options.struct_size = sizeof(options);
  options.name = name.c_str();
  options.rank = rank;
  options.world_size = world;
  options.timeout_ns = std::chrono::nanoseconds(30s).count();
  options.default_timeout_ns = default_timeout.count();
  ExpectOk(shunt_join(session, &options, &comm_));
}

// ---- Ranks

void RunThreads(int world, const std::function<void(int rank)>& body) {
  std::vector<std::string> words(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& e) {
        words[static_cast<size_t>(r)] = "rank " + std::to_string(r) + ": " + e.what() + "\n";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& w : words) all += w;
  if (!all.empty()) throw Wrong(all);
}

std::string FreshName() {
  static std::atomic<int> next{0};
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
}

void RunRanks(const TestDaemon& daemon, int world, const std::function<void(const Rank&)>& body,
              std::chrono::nanoseconds default_timeout) {
  const std::string name = FreshName();
  RunThreads(world, [&](int r) {
    const TestSession session(daemon.socket(), "rank-" + std::to_string(r));
    const TestComm comm(session, name, r, world, default_timeout);
    body({session, comm, r, world});
  });
}

shunt_call WithTimeout(std::chrono::nanoseconds timeout) {
  shunt_call call{};
  call.struct_size = sizeof(call);
  call.timeout_ns = timeout.count();
  return call;
}

void Meeting::Wait() {
  std::unique_lock lock(mutex_);
  if (++waiting_ == count_) {
    waiting_ = 0;
    ++round_;
    changed_.notify_all();
    return;
  }
  const int round = round_;
  // A thread that saw something wrong does not come.
  if (!changed_.wait_for(lock, 40s, [&] { return round_ != round; }))
    throw Wrong("the other threads did not come");
}

}  // namespace shunt::testing
