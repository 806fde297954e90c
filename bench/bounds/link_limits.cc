#include "bench/bounds/link_limits.h"

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bench/harness/layout.h"
#include "bench/harness/net_cluster.h"
#include "bench/harness/private_daemon.h"
#include "bench/harness/processes.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

constexpr int kStreamSeconds = 4;
constexpr uint64_t kUcxBytes = 1 << 20;
constexpr int kUcxMessages = 2000;

void Report(const char* name, uint64_t bytes, const LimitsOptions& options, const std::string& rate,
            double gbps, const std::string& how, std::vector<Record>* records) {
  std::printf("  %-22s %12lu %6d %10s %11s %11.4f  %s\n", name, bytes, options.nodes,
              rate.empty() ? "unshaped" : rate.c_str(), "-", gbps, how.c_str());
  std::fflush(stdout);
  records->push_back(Record()
                         .Set("op", name)
                         .Set("bytes", bytes)
                         .Set("nodes", options.nodes)
                         .Set("link_rate", rate.empty() ? "unshaped" : rate)
                         .Set("how", how)
                         .Set("bound", gbps)
                         .Set("value", gbps));
}

void Skip(const char* name, const absl::Status& status) {
  std::printf("  %-22s skipped: %s\n", name, std::string(status.message()).c_str());
}

void Stream(NetCluster* cluster, const LimitsOptions& options, std::vector<Record>* records) {
  const auto link = cluster->MeasureLink(0, 1, kStreamSeconds);
  if (!link.ok()) return Skip("tcp_stream", link.status());
  Report("tcp_stream", 1 << 20, options, cluster->link_rate(), link->gbps, link->congestion_control,
         records);
}

// One rank a node, the median of blocks as everywhere.
absl::Status Doubling(const NetCluster& cluster, const LimitsOptions& options,
                      std::vector<Record>* records) {
  SHUNT_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("shunt-peer-bare"));
  SHUNT_ASSIGN_OR_RETURN(const auto directory, TemporaryDirectory::Make());
  const Layout layout{options.nodes, options.nodes};
  SHUNT_ASSIGN_OR_RETURN(
      const auto job, StartProcesses("bare", layout, &cluster, [&](int) {
        return std::vector<std::string>{program, "--directory", directory->path()};
      }));
  for (uint64_t bytes = 8; bytes <= 4096; bytes *= 8) {
    Command command;
    command.problem = MakeProblem(Operation::kAllReduce, DataType::kFloat32, options.nodes, bytes);
    command.blocks = options.blocks;
    command.block_ns = options.block_ns;
    SHUNT_ASSIGN_OR_RETURN(const Measurement m, job->Run(command));
    if (m.wrong != 0) return absl::InternalError("bare_all_reduce: wrong results");
    std::printf("  %-22s %12lu %6d %10s %11.2f %11s\n", "bare_all_reduce", bytes, options.nodes,
                "unshaped", m.time_us, "-");
    std::fflush(stdout);
    records->push_back(Record()
                           .Set("op", "bare_all_reduce")
                           .Set("bytes", bytes)
                           .Set("ranks", options.nodes)
                           .Set("nodes", options.nodes)
                           .Set("time_us", m.time_us)
                           .Set("bound", m.time_us)
                           .Set("value", m.time_us));
  }
  return job->Stop();
}

}  // namespace

absl::Status MeasureLinkLimits(const LimitsOptions& options, std::vector<Record>* records) {
  SHUNT_ASSIGN_OR_RETURN(const auto cluster,
                         NetCluster::Start(options.nodes, options.link_rate, 0));
  std::printf("# %d nodes on %d cores; GB/s is payload, in 10^9 bytes a second\n", options.nodes,
              UsableCores());
  std::printf("# %-22s %12s %6s %10s %11s %11s  %s\n", "limit", "bytes", "nodes", "link",
              "time (us)", "GB/s", "how");
  if (!options.link_rate.empty()) {
    Stream(cluster.get(), options, records);
    SHUNT_RETURN_IF_ERROR(cluster->Shape(""));
  }
  Stream(cluster.get(), options, records);
  const auto program = SiblingProgram("shunt-transport-perf");
  const auto own = program.ok() ? cluster->MeasureTransport(*program, 0, 1, kUcxBytes, kUcxMessages)
                                : program.status();
  if (own.ok()) {
    Report("shunt_tcp", kUcxBytes, options, "", *own, "shunt-transport-perf", records);
  } else {
    Skip("shunt_tcp", own.status());
  }
  for (const char* const test : {"tag_bw", "ucp_put_bw", "ucp_am_bw"}) {
    const std::string name = absl::StrCat("ucx_", absl::StripPrefix(test, "ucp_"));
    const auto ucx = cluster->MeasureUcx(test, 0, 1, kUcxBytes, kUcxMessages);
    if (ucx.ok()) {
      Report(name.c_str(), kUcxBytes, options, "", *ucx, "ucx_perftest over tcp", records);
    } else {
      Skip(name.c_str(), ucx.status());
    }
  }
  return Doubling(*cluster, options, records);
}

}  // namespace shunt::bench
