#include "bench/versus/sides.h"

#include <unistd.h>

#include "bench/harness/processes.h"
#include "bench/harness/rank_home.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

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
  } else if (peer != "bare" && op == Operation::kReduceScatter) {
    return {"MPI_Reduce_scatter_block", "MPI_Reduce_scatter"};
  }
  return {""};
}

absl::StatusOr<std::unique_ptr<Job>> StartPeer(const std::string& peer, const Layout& layout,
                                               const NetCluster* cluster,
                                               const std::string& directory) {
  const bool processes = peer == "gloo" || peer == "bare";
  if (cluster != nullptr && !processes) {
    return absl::InvalidArgumentError("--nodes: the peers between nodes are gloo and bare, not " +
                                      peer +
                                      ": its mpirun would start its ranks on this node only");
  }
  auto program = SiblingProgram("shunt-peer-" + peer);
  if (!program.ok()) {
    return absl::NotFoundError("this build has no peer " + peer +
                               ": install its packages (scripts/dependencies.txt), configure and "
                               "build again");
  }
  if (processes) {
    return StartProcesses(peer, layout, cluster, [&](int) {
      return std::vector<std::string>{*program, "--directory", directory};
    });
  }
  return StartMpi(peer, layout.ranks, *program);
}

absl::StatusOr<std::unique_ptr<Job>> StartShunt(const Layout& layout, const NetCluster* cluster,
                                                const Daemons& daemons) {
  SHUNT_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("shunt-peer-shunt"));
  const RankHome home(layout, cluster, daemons);
  return StartProcesses("shunt", layout, cluster, [&](int rank) {
    return std::vector<std::string>{program, "--socket", home.SocketOf(rank)};
  });
}

}  // namespace shunt::bench
