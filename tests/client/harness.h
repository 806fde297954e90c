// A private shuntd and ranks on it: as threads with a session each, or as processes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client/include/shunt.h"
#include "tests/support/temp_dir.h"

namespace shunt::testing {

// What a rank throws when it sees something wrong: Catch2's macros belong to the main thread.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void Expect(bool condition, const std::string& words);
// A call's code must be `expected`; the words then hold all of `parts`.
void ExpectCode(int code, int expected, const std::vector<std::string>& parts = {});
inline void ExpectOk(int code) { ExpectCode(code, SHUNT_OK); }

// A child process, killed if it outlives this object.
class Process {
 public:
  // The child runs `body` and exits with 0, or 1 if it throws; its words go to stderr and Words().
  static Process Fork(const std::function<void()>& body);
  // Runs a program.
  static Process Exec(const std::vector<std::string>& arguments, const std::string& log_file);

  Process() = default;
  Process(Process&& other) noexcept { *this = std::move(other); }
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Its exit status as waitpid gives it; ends this object's ownership. -1 after `timeout` (it is
  // killed then).
  int Wait(std::chrono::seconds timeout = std::chrono::seconds(60));
  // Waits; throws Wrong with the child's words if it did not exit with 0.
  void Join(std::chrono::seconds timeout = std::chrono::seconds(60));

 private:
  pid_t pid_ = -1;
  int words_fd_ = -1;
};

// A shuntd of its own, on a socket in a temporary directory. $SHUNTD names the binary. Stopped with
// SIGTERM.
class TestDaemon {
 public:
  explicit TestDaemon(const std::vector<std::string>& flags = {});
  ~TestDaemon();

  const std::string& socket() const { return socket_; }
  std::string log() const;
  pid_t pid() const { return process_.pid(); }
  // SIGKILL, and waits.
  void Kill();

 private:
  TempDir dir_;
  std::string socket_;
  Process process_;
};

// A session, by default named for its rank.
class TestSession {
 public:
  explicit TestSession(const std::string& socket, const std::string& name = "test");
  TestSession(TestSession&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  ~TestSession() { shunt_close(session_); }
  shunt_session* get() const { return session_; }
  operator shunt_session*() const { return session_; }
  void* Allocate(size_t bytes) const;

 private:
  shunt_session* session_ = nullptr;
};

// A joined communicator.
class TestComm {
 public:
  TestComm(shunt_session* session, const std::string& name, int rank, int world,
           std::chrono::nanoseconds default_timeout = std::chrono::seconds(30));
  explicit TestComm(shunt_comm* comm) : comm_(comm) {}
  TestComm(TestComm&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  ~TestComm() { shunt_leave(comm_); }
  shunt_comm* get() const { return comm_; }
  operator shunt_comm*() const { return comm_; }
  int rank() const { return shunt_rank(comm_); }
  int world() const { return shunt_world_size(comm_); }

 private:
  shunt_comm* comm_ = nullptr;
};

// Runs `body(rank)` in `world` threads. Throws Wrong with the words of all ranks that threw.
void RunThreads(int world, const std::function<void(int rank)>& body);

// The same with a session and a communicator of a fresh name for each rank.
struct Rank {
  shunt_session* session;
  shunt_comm* comm;
  int rank;
  int world;
};
void RunRanks(const TestDaemon& daemon, int world, const std::function<void(const Rank&)>& body,
              std::chrono::nanoseconds default_timeout = std::chrono::seconds(30));

// A name that no other communicator of this process has.
std::string FreshName();

// Options with only a timeout.
shunt_call WithTimeout(std::chrono::nanoseconds timeout);

// Threads meet here between parts of a test.
class Meeting {
 public:
  explicit Meeting(int count) : count_(count) {}
  void Wait();

 private:
  const int count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  int round_ = 0;
};

}  // namespace shunt::testing
