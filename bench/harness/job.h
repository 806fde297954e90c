// The driver's side of a benchmark: a group of rank processes that run commands until stopped.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/harness/control.h"

namespace shunt::bench {

struct Measurement {
  double time_us = 0;  // median over blocks of the slowest rank's mean per iteration
  int64_t iterations = 0;
  int64_t operations = 0;  // that each rank ran, warm-up and checks included
  uint64_t wrong = 0;      // elements, over all ranks and both checks
};

struct SpawnOptions {
  bool quiet = false;  // stdout to /dev/null
  int network = -1;    // a network namespace to run in; -1: ours
};

// Starts a program, found through PATH, with stdin from /dev/null. It dies with the thread that
// started it.
absl::StatusOr<pid_t> SpawnProgram(const std::vector<std::string>& arguments,
                                   const SpawnOptions& options = {});

// Not thread-safe.
class Job {
 public:
  // Makes the rank processes; they attach to the control page at `control_path`. Returns the pids
  // of the direct children (an mpirun is one child with many ranks).
  using Spawn = std::function<absl::StatusOr<std::vector<pid_t>>(const std::string& control_path)>;

  // Returns when all ranks are attached. `name` stands in error messages.
  static absl::StatusOr<std::unique_ptr<Job>> Start(std::string name, int ranks,
                                                    const Spawn& spawn);
  // As Start, with `main` run in forked children of this process, which must have no other thread.
  // The child's exit code is what `main` returns.
  static absl::StatusOr<std::unique_ptr<Job>> Fork(
      std::string name, int ranks, const std::function<int(int rank, Control* control)>& main);
  // Kills what is left.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Runs one command on all ranks. UNIMPLEMENTED if the library cannot do it; after any error the
  // job is of no more use.
  absl::StatusOr<Measurement> Run(const Command& command,
                                  std::chrono::seconds timeout = std::chrono::seconds(120));
  // Lets the ranks end and waits for them.
  absl::Status Stop();

  const std::string& name() const { return name_; }

 private:
  Job(std::string name, ControlPage page) : name_(std::move(name)), page_(std::move(page)) {}

  Control* control() const { return page_.get(); }
  absl::Status Await(std::atomic<uint32_t>& word, uint32_t value, std::chrono::seconds timeout,
                     const char* what);
  absl::Status CheckChildren();
  absl::Status Failure() const;
  void Kill();

  std::string name_;
  ControlPage page_;
  std::vector<pid_t> children_;
  uint32_t issued_ = 0;
};

}  // namespace shunt::bench
