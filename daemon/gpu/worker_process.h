// A process that shuntd starts and watches: a GPU's worker, or one that lists GPUs. It gets what it
// is given and nothing else: descriptors 3 and up in the order named, a cleaned environment, a
// process group of its own. What it writes to stderr comes line by line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/event_loop.h"
#include "runtime/core/fd.h"

namespace shunt::daemon {

// What a worker sees of this process's environment: how libraries, CUDA and NVIDIA's containers are
// set up. CUDA loads eagerly; MPS is used where `use_mps` says so, and never by accident.
std::vector<std::string> WorkerEnvironment(const char* const* environment, bool use_mps);

// The program of that name beside this one's.
std::string ProgramBesideThis(const std::string& name);

// On the loop's thread only, which must outlive it: the kernel ends it with the thread that started
// it (PR_SET_PDEATHSIG, which the program sets itself).
class WorkerProcess {
 public:
  struct Options {
    std::string program;
    std::vector<std::string> arguments;
    std::vector<int> fds;  // the caller's; the process gets copies, from 3 on
    bool use_mps = false;
  };
  using Line = std::function<void(std::string_view)>;
  // "ended with exit status 1", "was killed by signal 9 (Killed)". The process is gone by then,
  // with all it had of the GPU. Must not destroy this object at once.
  using Ended = std::function<void(const std::string& how)>;
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(EventLoop* loop,
                                                              const Options& options, Line line,
                                                              Ended ended);
  // Kills it and waits for its end, if it has not ended. `ended` is not called then.
  ~WorkerProcess();

  int32_t pid() const { return pid_; }
  // All that it has written to stdout.
  const std::string& output() const { return output_; }
  // The last line that it wrote to stderr; "" if there is none.
  const std::string& last_line() const { return last_line_; }
  void Kill();

 private:
  explicit WorkerProcess(EventLoop* loop) : loop_(loop) {}
  absl::Status Spawn(const Options& options);
  void ReadOutput();
  void ReadLines();
  void TakeLine(std::string_view line);
  void OnEnd();
  std::string Reap();

  EventLoop* const loop_;
  Line line_;
  Ended ended_;
  int32_t pid_ = 0;  // 0: reaped
  UniqueFd pidfd_, out_, err_;
  EventLoop::WatchId watch_ = 0, out_watch_ = 0, err_watch_ = 0;
  std::string output_, partial_, last_line_;
};

}  // namespace shunt::daemon
