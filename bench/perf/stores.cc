#include "bench/perf/stores.h"

#include <shunt/client.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/perf/direct_io.h"
#include "bench/perf/side.h"
#include "bench/perf/store_place.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

// One size: memory with the payload, permuted, and where it is read from or written to.
class Run {
 public:
  Run(const PerfOptions& options, Session* session, Agent* agent, const StorePlace& place, Cut cut)
      : options_(options),
        agent_(*agent),
        place_(place),
        cut_(cut),
        write_(options.op == "write"),
        memory_(session->Allocate<uint8_t>(cut.bytes())),
        own_(agent->Prepare({Blocks(memory_.data(), cut.piece_bytes, cut.pieces)})),
        mine_(options.form, cut, 1, RegionOf(session, memory_.data())) {
    for (uint64_t i = 0; i < cut.bytes(); ++i) memory_[i] = ByteAt(i);
    // What is read is what Shunt has written, except where there may be somebody's file.
    if (!place.is_file() && !write_) Put();
  }

  absl::Status Measure() {
    if (!write_) std::fill(memory_.begin(), memory_.end(), uint8_t{0});
    std::vector<double> times, bounds;
    for (int block = -1; block < options_.blocks; ++block) {  // the first one warms up
      int64_t count = 0;
      const int64_t begun = NowNs();
      int64_t now = begun;
      while (options_.iterations > 0 ? count < options_.iterations
                                     : now - begun < options_.block_ns) {
        Move();
        ++count;
        now = NowNs();
      }
      if (block >= 0) times.push_back(static_cast<double>(now - begun) / 1e3 / count);
      if (!bounded() || block < 0) continue;
      SHUNT_ASSIGN_OR_RETURN(const double bound_us, DirectIoUs(options_.file, cut_, theirs(0),
                                                               options_.bound_threads, write_));
      bounds.push_back(bound_us);
      if (write_) Move();  // over what the bound has written
    }
    time_us = Median(times);
    if (!bounds.empty()) bound_us = Median(bounds);
    return absl::OkStatus();
  }

  uint64_t Wrong() {
    if (place_.is_file()) return WrongInFile();
    if (write_) {
      std::fill(memory_.begin(), memory_.end(), uint8_t{0});
      Get(Source());
    }
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < cut_.bytes(); ++i) wrong += memory_[i] != ByteAt(i);
    return wrong;
  }

  bool bounded() const { return place_.is_file() && options_.bound_threads > 0; }
  double time_us = 0;
  double bound_us = 0;

 private:
  // An open file, and its pieces as a list.
  struct Store {
    File file;
    List list;
    Side side;
    Selection All() const { return side.Of(list); }
  };

  static uint64_t RegionOf(Session* session, const void* data) {
    uint64_t region = 0;
    ThrowIfError(shunt_region_id(session->get(), data, &region));
    return region;
  }
  Store Of(File file) {
    List list = agent_.Prepare({file.Blocks(0, cut_.piece_bytes, cut_.pieces)});
    Side side = theirs(file.region_id());
    return {std::move(file), std::move(list), std::move(side)};
  }
  Side theirs(uint64_t region) const { return {options_.form, cut_, 2, region}; }
  Store& Source() {
    if (!opened_) opened_ = std::make_unique<Store>(Of(place_.Open()));
    return *opened_;
  }
  void Get(const Store& from) { agent_.Pull(mine_.Of(own_), from.All()).Wait(); }
  // An object, as a whole.
  void Put() {
    Store draft = Of(place_.Create(cut_.bytes()));
    agent_.Push(mine_.Of(own_), draft.All()).Wait();
    draft.file.Commit();
  }
  void Move() {
    if (!write_) return Get(Source());
    if (!place_.is_file()) return Put();
    Store& store = Source();
    agent_.Push(mine_.Of(own_), store.All()).Wait();
    store.file.Sync();
  }
  uint64_t WrongInFile() {
    const Side there = theirs(0);
    std::vector<uint8_t> piece(cut_.piece_bytes);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < cut_.pieces; ++i) {
      const uint8_t* const here = memory_.data() + mine_.id(i) * cut_.piece_bytes;
      if (!place_.ReadBack(there.id(i) * cut_.piece_bytes, piece.data(), piece.size())) {
        wrong += piece.size();
        continue;
      }
      for (size_t b = 0; b < piece.size(); ++b) wrong += piece[b] != here[b];
    }
    return wrong;
  }

  const PerfOptions& options_;
  Agent agent_;
  const StorePlace& place_;
  const Cut cut_;
  const bool write_;
  Buffer<uint8_t> memory_;
  List own_;
  Side mine_;
  std::unique_ptr<Store> opened_;
};

void PrintHead(const PerfOptions& options) {
  const std::string where = options.file.empty()
                                ? absl::StrCat("object ", options.bucket, "/", options.key)
                                : options.file;
  std::printf("# shunt-perf %s: %s, form %s\n", options.op.c_str(), where.c_str(),
              options.form.c_str());
  std::printf("#%12s %12s %10s  %12s %8s %8s %8s\n", "size", "piece", "pieces", "time", "algbw",
              "bound", "#wrong");
  std::printf("#%12s %12s %10s  %12s %8s %8s %8s\n", "(B)", "(B)", "", "(us)", "(GB/s)", "(GB/s)",
              "(B)");
}

absl::Status BenchmarkSize(const PerfOptions& options, Session* session, Agent* agent,
                           const Cut& cut, std::vector<Record>* records, uint64_t* wrong) {
  SHUNT_ASSIGN_OR_RETURN(const auto place, StorePlace::Make(options, session, cut.bytes()));
  Run run(options, session, agent, *place, cut);
  SHUNT_RETURN_IF_ERROR(run.Measure());
  const uint64_t bad = options.check ? run.Wrong() : 0;
  *wrong += bad;
  const auto rate = [&](double us) { return static_cast<double>(cut.bytes()) / 1e3 / us; };
  char bound[32] = "-";
  if (run.bounded()) std::snprintf(bound, sizeof(bound), "%.2f", rate(run.bound_us));
  std::printf(" %12lu %12lu %10lu  %12.2f %8.2f %8s %8s\n", cut.bytes(), cut.piece_bytes,
              cut.pieces, run.time_us, rate(run.time_us), bound,
              options.check ? std::to_string(bad).c_str() : "N/A");
  std::fflush(stdout);
  Record record;
  record.Set("op", options.op).Set("store", options.file.empty() ? "object" : "file");
  record.Set("bytes", cut.bytes()).Set("piece_bytes", cut.piece_bytes).Set("pieces", cut.pieces);
  record.Set("form", options.form).Set("time_us", run.time_us);
  record.Set("algbw_gbps", rate(run.time_us));
  if (run.bounded()) {
    record.Set("bound_threads", options.bound_threads).Set("bound_gbps", rate(run.bound_us));
  }
  if (options.check) record.Set("wrong", bad);
  records->push_back(record);
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> StoreFlags(const PerfOptions& options) {
  if (options.endpoint.find("://") == std::string::npos) return {};
  return {"--storage-s3", absl::StrCat("perf=", options.endpoint, " path-style")};
}

absl::Status BenchmarkStores(const PerfOptions& options, const std::string& socket,
                             std::vector<Record>* records, uint64_t* wrong) {
  try {
    Session session(Session::Options{socket, "perf"});
    Agent agent = session.Agent(absl::StrCat("perf-", session.id()));
    PrintHead(options);
    for (const uint64_t size : options.sizes) {
      SHUNT_RETURN_IF_ERROR(BenchmarkSize(options, &session, &agent,
                                          CutOf(size, options.piece_bytes), records, wrong));
    }
  } catch (const Error& error) {
    return absl::Status(static_cast<absl::StatusCode>(error.code()), error.what());
  }
  return absl::OkStatus();
}

}  // namespace shunt::bench
