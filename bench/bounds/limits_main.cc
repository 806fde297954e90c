// shunt-limits: the measured bounds of this machine.
#include <cstdio>
#include <string>
#include <vector>

#include "bench/bounds/latency.h"
#include "bench/bounds/link_limits.h"
#include "bench/bounds/one_pass.h"
#include "bench/harness/options.h"
#include "bench/harness/record.h"

namespace shunt::bench {
namespace {

class Limits {
 public:
  explicit Limits(const LimitsOptions& options) : options_(options), cores_(UsableCores()) {}

  int Run() {
    if (options_.nodes > 1) return RunLinks();
    std::printf(
        "# %d cores, %s loops; traffic is bytes read plus written, in 10^9 bytes a second\n",
        cores_, BestStreamKernels().name);
    std::printf("# %-22s %12s %6s %8s %11s %9s %9s %9s  %s\n", "limit", "bytes", "ranks", "workers",
                "time (us)", "traffic", "algbw", "busbw", "stores");
    bool ok = true;
    for (const uint64_t bytes : options_.sizes) {
      ok &= Copy(bytes, 1);
      if (cores_ > 1) ok &= Copy(bytes, cores_);
    }
    for (const int ranks : options_.ranks) {
      for (const Operation op : {Operation::kAllReduce, Operation::kReduceScatter,
                                 Operation::kAllGather, Operation::kAllToAll}) {
        for (const uint64_t bytes : options_.sizes) ok &= Pass(op, ranks, bytes);
      }
    }
    ok &= Latency("cache_line_round_trip", CacheLineRoundTripUs());
    ok &= Latency("futex_round_trip", FutexRoundTripUs());
    ok &= Latency("context_switch", ContextSwitchUs());
    const absl::Status written = WriteJson(options_.json, records_);
    if (!written.ok()) return Complain(written), 1;
    return ok ? 0 : 1;
  }

 private:
  int RunLinks() {
    absl::Status status = MeasureLinkLimits(options_, &records_);
    status.Update(WriteJson(options_.json, records_));
    if (status.ok()) return 0;
    Complain(status);
    return absl::IsNotFound(status) || absl::IsUnavailable(status) ? 3 : 1;
  }

  static void Complain(const absl::Status& status) {
    std::fprintf(stderr, "limits: %s\n", std::string(status.message()).c_str());
  }

  static const char* Stores(const Bound& bound) {
    return bound.temporal_us <= bound.non_temporal_us ? "temporal" : "non-temporal";
  }

  bool Copy(uint64_t bytes, int workers) {
    auto pass = OnePass::CreateCopy(bytes, workers);
    if (!pass.ok()) return Complain(pass.status()), false;
    const Bound bound = (*pass)->Measure(options_.blocks, options_.block_ns);
    const double traffic = static_cast<double>(bound.traffic_bytes) / 1e3 / bound.time_us;
    std::printf("  %-22s %12lu %6s %8d %11.2f %9.2f %9s %9s  %s\n", "copy", bytes, "-", workers,
                bound.time_us, traffic, "-", "-", Stores(bound));
    records_.push_back(Record()
                           .Set("op", "copy")
                           .Set("bytes", bytes)
                           .Set("memory", "host")
                           .Set("workers", workers)
                           .Set("time_us", bound.time_us)
                           .Set("bound", traffic)
                           .Set("value", traffic)
                           .Set("algorithm", Stores(bound)));
    return true;
  }

  bool Pass(Operation op, int ranks, uint64_t bytes) {
    auto pass = OnePass::Create(op, ranks, bytes, options_.in_place, cores_);
    if (!pass.ok()) return Complain(pass.status()), false;
    const Bound bound = (*pass)->Measure(options_.blocks, options_.block_ns);
    const double traffic = static_cast<double>(bound.traffic_bytes) / 1e3 / bound.time_us;
    const double algbw = static_cast<double>(bytes) / 1e3 / bound.time_us;
    const double busbw = algbw * BusFactor(op, ranks);
    const std::string name = "one_pass_" + std::string(Name(op));
    std::printf("  %-22s %12lu %6d %8d %11.2f %9.2f %9.2f %9.2f  %s\n", name.c_str(), bytes, ranks,
                cores_, bound.time_us, traffic, algbw, busbw, Stores(bound));
    records_.push_back(Record()
                           .Set("op", name)
                           .Set("bytes", bytes)
                           .Set("ranks", ranks)
                           .Set("memory", "host")
                           .Set("dtype", "float32")
                           .Set("placement", options_.in_place ? "in" : "out")
                           .Set("workers", cores_)
                           .Set("time_us", bound.time_us)
                           .Set("algbw_gbps", algbw)
                           .Set("busbw_gbps", busbw)
                           .Set("bound", busbw)
                           .Set("value", traffic)
                           .Set("algorithm", Stores(bound)));
    return true;
  }

  bool Latency(const char* name, const absl::StatusOr<double>& us) {
    if (!us.ok()) {
      std::printf("  %-22s skipped: %s\n", name, std::string(us.status().message()).c_str());
      return absl::IsUnavailable(us.status());
    }
    std::printf("  %-22s %12s %6s %8s %11.3f\n", name, "-", "-", "-", *us);
    records_.push_back(
        Record().Set("op", name).Set("time_us", *us).Set("bound", *us).Set("value", *us));
    return true;
  }

  LimitsOptions options_;
  int cores_;
  std::vector<Record> records_;
};

}  // namespace
}  // namespace shunt::bench

int main(int argc, char** argv) {
  shunt::bench::LimitsOptions options;
  if (const auto code = shunt::bench::ParseLimitsOptions(argc, argv, &options)) return *code;
  return shunt::bench::Limits(options).Run();
}
