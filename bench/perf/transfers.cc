#include "bench/perf/transfers.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/harness/job.h"
#include "bench/perf/side.h"
#include "bench/perf/transfer_rank.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

// The forked ranks' memory too.
Found* SharedFound(int ranks) {
  void* const data = ::mmap(nullptr, sizeof(Found) * static_cast<size_t>(ranks),
                            PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  SHUNT_CHECK(data != MAP_FAILED);
  return static_cast<Found*>(data);
}

void PrintHead(const PerfOptions& options) {
  std::printf(
      "# shunt-perf %s: %d pair(s) of ranks on %d cores, %d in flight, form %s, memory %s\n",
      options.op.c_str(), options.ranks / 2, UsableCores(), options.in_flight, options.form.c_str(),
      std::string(Name(options.memory)).c_str());
  std::printf("#%12s %12s %10s  %10s %10s %8s %8s\n", "size", "piece", "pieces", "post", "time",
              "algbw", "#wrong");
  std::printf("#%12s %12s %10s  %10s %10s %8s %8s\n", "(B)", "(B)", "", "(us)", "(us)", "(GB/s)",
              "(B)");
}

}  // namespace

absl::Status BenchmarkTransfers(const PerfOptions& options, const RankHome& home,
                                const NetCluster* cluster, std::vector<Record>* records,
                                uint64_t* wrong) {
  const Layout layout{options.ranks, options.nodes};
  Found* const found = SharedFound(options.ranks);
  const auto main = [&](int rank, Control* control) {
    if (const absl::Status entered = home.Enter(rank); !entered.ok()) {
      control->Fail(std::string(entered.message()));
      return 1;
    }
    const int owner = layout.NodeOf(rank % (options.ranks / 2));
    const std::string peer_node = cluster != nullptr && owner != layout.NodeOf(rank)
                                      ? absl::StrCat("@", cluster->NodeName(owner))
                                      : "";
    return ServeTransfers(options, rank, home.SocketOf(rank), control, peer_node, found);
  };
  SHUNT_ASSIGN_OR_RETURN(const auto job, Job::Fork("shunt", options.ranks, main));
  PrintHead(options);
  for (const uint64_t size : options.sizes) {
    const Cut cut = CutOf(size, options.piece_bytes);
    Command command;
    command.problem.count = cut.bytes();
    SHUNT_RETURN_IF_ERROR(job->Run(command, std::chrono::seconds(600)).status());
    Found slowest{};
    uint64_t bad = 0;
    for (int rank = 0; rank < options.ranks; ++rank) {
      slowest.time_us = std::max(slowest.time_us, found[rank].time_us);
      slowest.post_us = std::max(slowest.post_us, found[rank].post_us);
      bad += found[rank].wrong;
    }
    // Of one pair.
    const double algbw = static_cast<double>(cut.bytes()) / 1e3 / slowest.time_us;
    std::printf(" %12lu %12lu %10lu  %10.2f %10.2f %8.2f %8s\n", cut.bytes(), cut.piece_bytes,
                cut.pieces, slowest.post_us, slowest.time_us, algbw,
                options.check ? std::to_string(bad).c_str() : "N/A");
    std::fflush(stdout);
    *wrong += bad;
    Record record;
    record.Set("op", options.op).Set("bytes", cut.bytes()).Set("piece_bytes", cut.piece_bytes);
    record.Set("memory", Name(options.memory));
    record.Set("pieces", cut.pieces).Set("form", options.form);
    record.Set("ranks", options.ranks).Set("nodes", options.nodes);
    record.Set("in_flight", options.in_flight).Set("post_us", slowest.post_us);
    record.Set("time_us", slowest.time_us).Set("algbw_gbps", algbw);
    if (options.check) record.Set("wrong", bad);
    records->push_back(record);
  }
  return job->Stop();
}

}  // namespace shunt::bench
