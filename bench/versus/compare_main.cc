// shunt-compare: the same operations on a peer and on Shunt, interleaved.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/bounds/one_pass.h"
#include "bench/harness/job.h"
#include "bench/harness/link_report.h"
#include "bench/harness/options.h"
#include "bench/harness/private_daemon.h"
#include "bench/harness/record.h"
#include "bench/versus/sides.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

struct Side {
  std::vector<double> times;      // microseconds, one a round
  std::vector<double> nic_bytes;  // of an operation
  uint64_t wrong = 0;
  double Median() const { return times.empty() ? 0 : bench::Median(times); }
  double NicBytes() const { return nic_bytes.empty() ? 0 : bench::Median(nic_bytes); }
};

class Comparison {
 public:
  explicit Comparison(const CompareOptions& options)
      : options_(options), variants_(PeerVariants(options.peer, options.op)) {}

  absl::Status Start() {
    if (options_.bound && (!HasOnePassBound(options_.op) || options_.dtype != DataType::kFloat32)) {
      return absl::InvalidArgumentError(
          "--bound: there is a bound for float32 all_reduce, all_gather, reduce_scatter and "
          "all_to_all only");
    }
    if (options_.placement == Placement::kIn && !HasInPlace(options_.op)) {
      return absl::InvalidArgumentError(std::string(Name(options_.op)) + " cannot run in place");
    }
    if (options_.bound && options_.nodes > 1) {
      return absl::InvalidArgumentError("--bound is one node's memory; --nodes has line_fraction");
    }
    const Layout layout{options_.ranks, options_.nodes};
    SHUNT_ASSIGN_OR_RETURN(cluster_, StartNodes(options_));
    if (options_.run_peer) {
      SHUNT_ASSIGN_OR_RETURN(directory_, TemporaryDirectory::Make());
      SHUNT_ASSIGN_OR_RETURN(peer_,
                             StartPeer(options_.peer, layout, cluster_.get(), directory_->path()));
    }
    if (options_.run_shunt) {
      SHUNT_ASSIGN_OR_RETURN(daemons_, Daemons::Start(cluster_.get(), options_.socket));
      SHUNT_ASSIGN_OR_RETURN(shunt_, StartShunt(layout, cluster_.get(), *daemons_));
    }
    link_ = LinkReport(cluster_.get(), layout);
    return absl::OkStatus();
  }

  absl::Status Run() {
    PrintHead();
    std::vector<uint64_t> done;
    for (const uint64_t wanted : options_.sizes) {
      Problem problem = MakeProblem(options_.op, options_.dtype, options_.ranks, wanted);
      problem.redop = options_.redop;
      problem.root = options_.root;
      const uint64_t bytes = SizeBytes(problem);
      // Small sizes may round to the same number of elements.
      if (std::find(done.begin(), done.end(), bytes) != done.end()) continue;
      done.push_back(bytes);
      for (const bool in_place : {false, true}) {
        if (in_place ? options_.placement == Placement::kOut || !HasInPlace(options_.op)
                     : options_.placement == Placement::kIn) {
          continue;
        }
        SHUNT_RETURN_IF_ERROR(RunSize(problem, in_place));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Stop() {
    absl::Status status;
    if (peer_) status.Update(peer_->Stop());
    if (shunt_) status.Update(shunt_->Stop());
    return status;
  }

  bool any_wrong() const { return any_wrong_; }
  const std::vector<Record>& records() const { return records_; }

 private:
  absl::Status RunSize(const Problem& problem, bool in_place) {
    std::vector<Side> peers(variants_.size());
    Side shunt;
    std::vector<double> bounds;
    std::unique_ptr<OnePass> pass;
    if (options_.bound) {
      SHUNT_ASSIGN_OR_RETURN(pass, OnePass::Create(options_.op, options_.ranks, SizeBytes(problem),
                                                   in_place, UsableCores()));
    }
    Command command;
    command.check = options_.check;
    command.in_place = in_place;
    command.memory = options_.memory;
    command.blocks = options_.blocks;
    command.block_ns = options_.block_ns;
    command.iterations = options_.iterations;
    command.warmup = options_.warmup;
    for (int round = 0; round < options_.rounds; ++round) {
      command.problem = problem;
      command.problem.seed = static_cast<uint64_t>(round) + 1;
      const bool shunt_first = round % 2 == 1;
      if (shunt_first) SHUNT_RETURN_IF_ERROR(Measure(shunt_.get(), command, &shunt));
      for (size_t v = 0; v < variants_.size(); ++v) {
        command.variant = static_cast<int32_t>(v);
        SHUNT_RETURN_IF_ERROR(Measure(peer_.get(), command, &peers[v]));
      }
      command.variant = 0;
      if (!shunt_first) SHUNT_RETURN_IF_ERROR(Measure(shunt_.get(), command, &shunt));
      if (pass) bounds.push_back(pass->Measure(options_.blocks, options_.block_ns).time_us);
    }
    const auto best =
        std::min_element(peers.begin(), peers.end(),
                         [](const Side& a, const Side& b) { return a.Median() < b.Median(); });
    const std::string& variant = variants_[static_cast<size_t>(best - peers.begin())];
    Report(problem, in_place, *best, variant, shunt, bounds.empty() ? 0 : Median(bounds));
    return absl::OkStatus();
  }

  absl::Status Measure(Job* job, const Command& command, Side* side) const {
    if (job == nullptr) return absl::OkStatus();
    double nic_bytes = 0;
    SHUNT_ASSIGN_OR_RETURN(const Measurement m, link_.Run(*job, command, &nic_bytes));
    side->nic_bytes.push_back(nic_bytes);
    side->times.push_back(m.time_us);
    side->wrong += m.wrong;
    return absl::OkStatus();
  }

  void PrintHead() const {
    std::printf(
        "# %s, %s%s, %d ranks on %d cores; memory: %s malloc, shunt %s; median of %d rounds\n",
        std::string(Name(options_.op)).c_str(), std::string(shunt::Name(options_.dtype)).c_str(),
        Reduces(options_.op) ? (" " + std::string(shunt::Name(options_.redop))).c_str() : "",
        options_.ranks, UsableCores(), options_.peer.c_str(),
        options_.memory == Memory::kHost ? "regions" : "malloc", options_.rounds);
    if (cluster_) std::printf("# %s\n", link_.Describe().c_str());
    std::printf("# %10s %5s %12s %12s %8s %12s %12s", "bytes", "place",
                (options_.peer + " us").c_str(), "shunt us", "ratio",
                (options_.peer + " GB/s").c_str(), "shunt GB/s");
    if (options_.bound) std::printf(" %11s %9s", "bound GB/s", "of bound");
    if (cluster_) std::printf(" %9s %9s", "peer line", "line");
    std::printf(" %9s %9s\n", "wrong", "wrong");
    std::fflush(stdout);
  }

  void Report(const Problem& problem, bool in_place, const Side& peer, const std::string& variant,
              const Side& shunt, double bound_us) {
    const uint64_t bytes = SizeBytes(problem);
    const auto busbw = [&](double us) {
      if (us <= 0) return 0.0;
      return static_cast<double>(bytes) / 1e3 / us * BusFactor(problem.op, problem.ranks);
    };
    const double ours = shunt.Median();
    const double theirs = peer.Median();
    const bool both = ours > 0 && theirs > 0;
    std::printf("  %10lu %5s %12.2f %12.2f %8.2f %12.2f %12.2f", bytes, in_place ? "in" : "out",
                theirs, ours, both ? theirs / ours : 0.0, busbw(theirs), busbw(ours));
    if (options_.bound) {
      std::printf(" %11.2f %8.0f%%", busbw(bound_us), ours > 0 ? 100 * bound_us / ours : 0.0);
    }
    if (cluster_) {
      std::printf(" %8.0f%% %8.0f%%", 100 * link_.LineFraction(problem, theirs),
                  100 * link_.LineFraction(problem, ours));
    }
    std::printf(" %9lu %9lu  %s\n", peer.wrong, shunt.wrong, variant.c_str());
    std::fflush(stdout);
    any_wrong_ = any_wrong_ || peer.wrong != 0 || shunt.wrong != 0;

    Record record;
    record.Set("op", Name(problem.op)).Set("bytes", bytes).Set("ranks", problem.ranks);
    link_.AddTo(&record, problem, ours, shunt.NicBytes());
    if (!options_.algorithm.empty()) record.Set("algorithm", options_.algorithm);
    record.Set("memory", options_.memory == Memory::kHost ? "host" : "malloc");
    record.Set("dtype", shunt::Name(problem.dtype));
    if (Reduces(problem.op)) record.Set("redop", shunt::Name(problem.redop));
    record.Set("placement", in_place ? "in" : "out");
    if (ours > 0) {
      record.Set("time_us", ours).Set("algbw_gbps", static_cast<double>(bytes) / 1e3 / ours);
      record.Set("busbw_gbps", busbw(ours)).Set("wrong", shunt.wrong);
    }
    record.Set("peer", options_.peer);
    if (theirs > 0) {
      record.Set("peer_time_us", theirs).Set("peer_busbw_gbps", busbw(theirs));
      record.Set("peer_wrong", peer.wrong);
      if (cluster_) {
        record.Set("peer_line_fraction", link_.LineFraction(problem, theirs));
        record.Set("peer_nic_bytes", peer.NicBytes());
      }
      if (!variant.empty()) record.Set("peer_variant", variant);
    }
    if (both) record.Set("ratio", theirs / ours);
    if (bound_us > 0) {
      record.Set("bound", busbw(bound_us));
      if (ours > 0) record.Set("value", bound_us / ours);
    }
    records_.push_back(record);
  }

  CompareOptions options_;
  std::vector<std::string> variants_;
  std::unique_ptr<TemporaryDirectory> directory_;
  std::unique_ptr<NetCluster> cluster_;  // ends after what runs on it
  LinkReport link_;
  std::unique_ptr<Daemons> daemons_;
  std::unique_ptr<Job> peer_;
  std::unique_ptr<Job> shunt_;
  std::vector<Record> records_;
  bool any_wrong_ = false;
};

int Main(const CompareOptions& options) {
  Comparison comparison(options);
  absl::Status status = comparison.Start();
  if (status.ok()) status = comparison.Run();
  if (status.ok()) status = comparison.Stop();
  status.Update(WriteJson(options.json, comparison.records()));
  if (!status.ok()) {
    std::fprintf(stderr, "compare: %s\n", std::string(status.message()).c_str());
    return absl::IsNotFound(status) ? 3 : 1;
  }
  if (comparison.any_wrong()) {
    std::fprintf(stderr, "compare: results were wrong; the times above do not count\n");
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace shunt::bench

int main(int argc, char** argv) {
  shunt::bench::CompareOptions options;
  if (const auto code = shunt::bench::ParseCompareOptions(argc, argv, &options)) return *code;
  return shunt::bench::Main(options);
}
