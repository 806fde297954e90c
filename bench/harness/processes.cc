#include "bench/harness/processes.h"

#include "runtime/core/status.h"

namespace shunt::bench {

absl::StatusOr<std::unique_ptr<Job>> StartProcesses(
    const std::string& name, const Layout& layout, const NetCluster* cluster,
    const std::function<std::vector<std::string>(int rank)>& command) {
  return Job::Start(
      name, layout.ranks, [&](const std::string& control) -> absl::StatusOr<std::vector<pid_t>> {
        std::vector<pid_t> pids;
        for (int rank = 0; rank < layout.ranks; ++rank) {
          const NetCluster::Node* node =
              cluster == nullptr ? nullptr
                                 : &cluster->nodes()[static_cast<size_t>(layout.NodeOf(rank))];
          std::vector<std::string> arguments = command(rank);
          arguments.insert(arguments.end(), {"--control", control, "--rank", std::to_string(rank)});
          arguments.insert(arguments.end(),
                           {"--address", node == nullptr ? "127.0.0.1" : node->address});
          SpawnOptions options;
          if (node != nullptr) options.network = node->network.get();
          SHUNT_ASSIGN_OR_RETURN(const pid_t pid, SpawnProgram(arguments, options));
          pids.push_back(pid);
        }
        return pids;
      });
}

}  // namespace shunt::bench
