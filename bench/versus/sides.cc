#include "bench/versus/sides.h"

#include <unistd.h>

#include "bench/harness/private_daemon.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

// One process a rank, started by us.
absl::StatusOr<std::unique_ptr<Job>> StartProcesses(const std::string& name, int ranks,
                                                    const std::vector<std::string>& command) {
  return Job::Start(
      name, ranks, [&](const std::string& control) -> absl::StatusOr<std::vector<pid_t>> {
        std::vector<pid_t> pids;
        for (int rank = 0; rank < ranks; ++rank) {
          std::vector<std::string> arguments = command;
          arguments.insert(arguments.end(), {"--control", control, "--rank", std::to_string(rank)});
          SHUNT_ASSIGN_OR_RETURN(const pid_t pid, SpawnProgram(arguments));
          pids.push_back(pid);
        }
        return pids;
      });
}

absl::StatusOr<std::unique_ptr<Job>> StartMpi(const std::string& name, int ranks,
                                              const std::string& program) {
  std::vector<std::string> command = {"mpirun." + name};
  if (name == "openmpi") {
    if (::geteuid() == 0) command.push_back("--allow-run-as-root");
    if (ranks > UsableCores()) command.push_back("--oversubscribe");
  }
  command.insert(command.end(), {"-np", std::to_string(ranks), program, "--control"});
  return Job::Start(name, ranks,
                    [&](const std::string& control) -> absl::StatusOr<std::vector<pid_t>> {
                      command.push_back(control);
                      SHUNT_ASSIGN_OR_RETURN(const pid_t pid, SpawnProgram(command));
                      return std::vector<pid_t>{pid};
                    });
}

}  // namespace

std::vector<std::string> PeerVariants(const std::string& peer, Operation op) {
  if (peer == "gloo") {
    if (op == Operation::kAllReduce) return {"ring", "bcube"};
  } else if (op == Operation::kReduceScatter) {
    return {"MPI_Reduce_scatter_block", "MPI_Reduce_scatter"};
  }
  return {""};
}

absl::StatusOr<std::unique_ptr<Job>> StartPeer(const std::string& peer, int ranks,
                                               const std::string& directory) {
  auto program = SiblingProgram("shunt-peer-" + peer);
  if (!program.ok()) {
    return absl::NotFoundError("this build has no peer " + peer +
                               ": install its packages (scripts/dependencies.txt), configure and "
                               "build again");
  }
  if (peer == "gloo") {
    return StartProcesses(peer, ranks, {*program, "--directory", directory});
  }
  return StartMpi(peer, ranks, *program);
}

absl::StatusOr<std::unique_ptr<Job>> StartShunt(int ranks, const std::string& socket) {
  SHUNT_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("shunt-peer-shunt"));
  return StartProcesses("shunt", ranks, {program, "--socket", socket});
}

}  // namespace shunt::bench
