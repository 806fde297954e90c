// shunt-perf: Shunt's collectives in the columns of nccl-tests.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness/job.h"
#include "bench/harness/link_report.h"
#include "bench/harness/options.h"
#include "bench/harness/private_daemon.h"
#include "bench/harness/rank_home.h"
#include "bench/harness/record.h"
#include "bench/harness/worker.h"
#include "bench/perf/lifecycle.h"
#include "bench/perf/shunt_backend.h"
#include "bench/perf/stores.h"
#include "bench/perf/transfers.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

// In a rank's process, before it opens a session.
absl::Status PlaceOnCpus(const PerfOptions& options, int rank) {
  std::vector<int> cpus = options.cpus;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof(allowed), &allowed);
  if (cpus.empty() && options.bind) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) return absl::OkStatus();
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (size_t i = 0; i < cpus.size(); ++i) {
    if (!options.bind || i == static_cast<size_t>(rank) % cpus.size()) CPU_SET(cpus[i], &wanted);
  }
  if (::sched_setaffinity(0, sizeof(wanted), &wanted) != 0) {
    return ErrnoStatus(errno, "--cpus: sched_setaffinity");
  }
  return absl::OkStatus();
}

int RankMain(const PerfOptions& options, const RankHome& home, int rank, Control* control) {
  absl::Status placed = home.Enter(rank);
  placed.Update(PlaceOnCpus(options, rank));
  if (!placed.ok()) {
    control->Fail(std::string(placed.message()));
    return 1;
  }
  const std::string name = "perf-" + std::to_string(control->driver_pid);
  auto backend = OpenShuntBackend(rank, options.ranks, home.SocketOf(rank), name,
                                  options.memory == Memory::kCuda);
  if (!backend.ok()) {
    control->Fail(std::string(backend.status().message()));
    return 1;
  }
  return ServeBenchmark(control, **backend);
}

class Sweep {
 public:
  Sweep(const PerfOptions& options, Operation op, LinkReport link)
      : options_(options), op_(op), link_(std::move(link)) {}

  absl::Status Run(const RankHome& home) {
    if (options_.placement == Placement::kIn && !HasInPlace(op_)) {
      return absl::InvalidArgumentError(std::string(Name(op_)) + " cannot run in place");
    }
    SHUNT_ASSIGN_OR_RETURN(const auto job,
                           Job::Fork("shunt", options_.ranks, [&](int rank, Control* control) {
                             return RankMain(options_, home, rank, control);
                           }));
    PrintHead();
    std::vector<uint64_t> done;
    for (const uint64_t wanted : options_.sizes) {
      Problem problem = MakeProblem(op_, options_.dtype, options_.ranks, wanted);
      problem.redop = options_.redop;
      problem.root = options_.root;
      const uint64_t bytes = SizeBytes(problem);
      // Small sizes may round to the same number of elements.
      if (std::find(done.begin(), done.end(), bytes) != done.end()) continue;
      done.push_back(bytes);
      PrintProblem(problem);
      for (const bool in_place : {false, true}) {
        SHUNT_RETURN_IF_ERROR(RunOne(*job, problem, in_place));
      }
      std::printf("\n");
    }
    std::printf("# Wrong elements: %lu%s\n", wrong_, options_.check ? "" : " (not checked)");
    if (measured_ > 0) {
      std::printf("# Avg bus bandwidth (GB/s): %.3f\n",
                  busbw_sum_ / static_cast<double>(measured_));
    }
    return job->Stop();
  }

  uint64_t wrong() const { return wrong_; }
  const std::vector<Record>& records() const { return records_; }

 private:
  void PrintHead() const {
    std::printf("# shunt-perf %s: %d ranks on %d cores, memory %s\n",
                std::string(Name(op_)).c_str(), options_.ranks, UsableCores(),
                options_.memory == Memory::kHost ? "host (regions)"
                                                 : std::string(Name(options_.memory)).c_str());
    if (options_.nodes > 1) std::printf("# %s\n", link_.Describe().c_str());
    std::printf("#%12s %12s %11s %10s %5s  %36s  %36s\n", "", "", "", "", "",
                "out-of-place            ", "in-place              ");
    std::printf("#%12s %12s %11s %10s %5s ", "size", "count", "type", "redop", "root");
    for (int i = 0; i < 2; ++i)
      std::printf("  %10s %8s %8s %6s ", "time", "algbw", "busbw", "#wrong");
    std::printf("\n#%12s %12s %11s %10s %5s ", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; ++i) std::printf("  %10s %8s %8s %6s ", "(us)", "(GB/s)", "(GB/s)", "");
    std::printf("\n");
    std::fflush(stdout);
  }

  void PrintProblem(const Problem& p) const {
    const std::string redop = Reduces(p.op) ? std::string(shunt::Name(p.redop)) : "none";
    std::printf(" %12lu %12lu %11s %10s %5d ", SizeBytes(p), p.count,
                std::string(shunt::Name(p.dtype)).c_str(), redop.c_str(),
                HasRoot(p.op) ? p.root : -1);
    std::fflush(stdout);
  }

  absl::Status RunOne(Job& job, const Problem& problem, bool in_place) {
    const Placement other = in_place ? Placement::kOut : Placement::kIn;
    if (options_.placement == other || (in_place && !HasInPlace(op_))) {
      std::printf("  %10s %8s %8s %6s ", "-", "-", "-", "-");
      return absl::OkStatus();
    }
    Command command;
    command.check = options_.check;
    command.in_place = in_place;
    command.memory = options_.memory;
    command.blocks = options_.blocks;
    command.block_ns = options_.block_ns;
    command.iterations = options_.iterations;
    command.warmup = options_.warmup;
    command.graph_calls = options_.graph_calls;
    command.after_kernel_us = options_.after_kernel_us;
    command.problem = problem;
    double nic_bytes = 0;
    SHUNT_ASSIGN_OR_RETURN(const Measurement m, link_.Run(job, command, &nic_bytes));
    const uint64_t bytes = SizeBytes(problem);
    const double algbw = static_cast<double>(bytes) / 1e3 / m.time_us;
    const double busbw = algbw * BusFactor(op_, options_.ranks);
    const std::string wrong = options_.check ? std::to_string(m.wrong) : "N/A";
    std::printf("  %10.2f %8.2f %8.2f %6s ", m.time_us, algbw, busbw, wrong.c_str());
    std::fflush(stdout);
    wrong_ += m.wrong;
    busbw_sum_ += busbw;
    ++measured_;

    Record record;
    record.Set("op", Name(op_)).Set("bytes", bytes).Set("count", problem.count);
    record.Set("ranks", options_.ranks);
    link_.AddTo(&record, problem, m.time_us, nic_bytes);
    if (!options_.algorithm.empty()) record.Set("algorithm", options_.algorithm);
    record.Set("memory", Name(options_.memory));
    if (options_.graph_calls > 0) record.Set("graph_calls", options_.graph_calls);
    if (options_.after_kernel_us > 0) record.Set("after_kernel_us", options_.after_kernel_us);
    record.Set("dtype", shunt::Name(problem.dtype));
    if (Reduces(op_)) record.Set("redop", shunt::Name(problem.redop));
    if (HasRoot(op_)) record.Set("root", problem.root);
    record.Set("placement", in_place ? "in" : "out").Set("time_us", m.time_us);
    record.Set("algbw_gbps", algbw).Set("busbw_gbps", busbw);
    if (options_.check) record.Set("wrong", m.wrong);
    records_.push_back(record);
    return absl::OkStatus();
  }

  PerfOptions options_;
  Operation op_;
  LinkReport link_;
  std::vector<Record> records_;
  uint64_t wrong_ = 0;
  double busbw_sum_ = 0;
  int64_t measured_ = 0;
};

std::vector<std::string> DaemonFlags(const PerfOptions& options) {
  std::vector<std::string> flags = StoreFlags(options);
  if (options.memory == Memory::kCuda || options.memory == Memory::kCudaHost) {
    flags.insert(flags.end(), {"--gpu-enabled", "on"});
  }
  return flags;
}

absl::Status RunBenchmark(const PerfOptions& options, uint64_t* wrong) {
  if (options.open_child) return OpenChild(options.socket);
  const auto op = ParseOperation(options.op);
  const bool moves = options.op == "pull" || options.op == "push";
  if (options.nodes > 1 && !op && !moves && options.op != "join") {
    return absl::InvalidArgumentError("--nodes: for operations, transfers and join, not for " +
                                      options.op);
  }
  SHUNT_ASSIGN_OR_RETURN(const auto cluster, StartNodes(options));
  SHUNT_ASSIGN_OR_RETURN(const auto daemons,
                         Daemons::Start(cluster.get(), options.socket, DaemonFlags(options)));
  const Layout layout{options.ranks, options.nodes};
  const RankHome home(layout, cluster.get(), *daemons);
  const DaemonUnderTest& daemon = (*daemons)[0];
  std::vector<Record> records;
  absl::Status status;
  if (op) {
    Sweep sweep(options, *op, LinkReport(cluster.get(), layout));
    status = sweep.Run(home);
    records = sweep.records();
    *wrong = sweep.wrong();
  } else if (moves) {
    status = BenchmarkTransfers(options, home, cluster.get(), &records, wrong);
  } else if (options.op == "read" || options.op == "write") {
    status = BenchmarkStores(options, daemon.socket(), &records, wrong);
  } else if (options.op == "join") {
    status = BenchmarkJoin(options, home, &records);
  } else if (options.op == "open") {
    status = BenchmarkOpen(options, daemon, &records);
  } else if (options.op == "soak") {
    status = BenchmarkSoak(options, daemon, &records);
  } else {
    status = BenchmarkIdle(options, daemon, &records);
  }
  status.Update(WriteJson(options.json, records));
  return status;
}

int Main(const PerfOptions& options) {
  uint64_t wrong = 0;
  const absl::Status status = RunBenchmark(options, &wrong);
  if (!status.ok()) {
    std::fflush(stdout);
    std::fprintf(stderr, "\nshunt-perf: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace shunt::bench

int main(int argc, char** argv) {
  shunt::bench::PerfOptions options;
  if (const auto code = shunt::bench::ParsePerfOptions(argc, argv, &options)) return *code;
  return shunt::bench::Main(options);
}
