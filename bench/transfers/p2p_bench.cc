// shunt-p2p-bench: what it costs to post a transfer and to walk its plan, and how fast pieces are
// copied, beside a plain loop of memcpy over the same pieces with as many threads.
//
//   shunt-p2p-bench [copy|post|walk|all] [THREADS [MIB_MAX]]
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/p2p/copier.h"
#include "runtime/p2p/message_copy.h"

namespace {

using namespace shunt;
using namespace shunt::p2p;

constexpr int kRounds = 7;
constexpr uint64_t kFrom = 1, kTo = 2;

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "shunt-p2p-bench: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}
template <typename T>
T Must(absl::StatusOr<T> result) {
  if (!result.ok()) Die(result.status());
  return *std::move(result);
}

// Shared memory, as regions are.
class Arena : public RegionMemory {
 public:
  explicit Arena(uint64_t bytes) : bytes_(bytes) {
    for (std::byte*& region : regions_) {
      void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      if (p == MAP_FAILED) Die(absl::ResourceExhaustedError("no memory"));
      region = static_cast<std::byte*>(p);
      std::memset(region, 1, bytes);
    }
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() override {
    for (std::byte* region : regions_) ::munmap(region, bytes_);
  }
  absl::StatusOr<std::byte*> Find(const RegionExtent& region) override {
    return regions_[region.id - 1];
  }

 private:
  uint64_t bytes_;
  std::byte* regions_[2];
};

std::shared_ptr<const PreparedList> Blocks(uint64_t region, uint64_t count, uint64_t bytes) {
  Section section;
  section.name = "blocks";
  section.regions = {{region, count * bytes}};
  section.sets = {{region, 0, bytes, {{{1, 0}, {1, 0}, {count, static_cast<int64_t>(bytes)}}}}};
  return Must(PreparedList::Prepare(std::move(section), 0));
}

std::vector<uint32_t> Permuted(uint64_t count, uint32_t seed) {
  std::vector<uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
  return ids;
}

double SecondsOf(const std::function<void()>& body) {
  const int64_t begin = NowNs();
  body();
  return static_cast<double>(NowNs() - begin) * 1e-9;
}

void OnThreads(int threads, const std::function<void(int)>& body) {
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(body, i);
  body(0);
  for (std::thread& thread : others) thread.join();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Row(const char* name, uint64_t total, int threads, const std::vector<double>& ours,
         const std::vector<double>& plain) {
  const double our_rate = static_cast<double>(total) / Median(ours) * 1e-9;
  const double plain_rate = static_cast<double>(total) / Median(plain) * 1e-9;
  std::printf("%-34s %6llu MiB %3d %8.2f %8.2f %6.2f\n", name,
              static_cast<unsigned long long>(total >> 20), threads, our_rate, plain_rate,
              our_rate / plain_rate);
  std::fflush(stdout);
}

// Blocks of `from_bytes` in an order of their own into blocks of `to_bytes` in another.
void Copy(const char* name, uint64_t from_bytes, bool permute_from, uint64_t to_bytes,
          bool permute_to, uint64_t total, int threads) {
  const uint64_t from_count = total / from_bytes, to_count = total / to_bytes;
  total = std::min(from_count * from_bytes, to_count * to_bytes);
  Arena arena(total);
  const auto ids = [](uint64_t count, bool permute, uint32_t seed) {
    std::vector<uint32_t> ids = Permuted(count, seed);
    if (!permute) std::sort(ids.begin(), ids.end());
    return ids;
  };
  const std::vector<uint32_t> from_ids = ids(from_count, permute_from, 1);
  const std::vector<uint32_t> to_ids = ids(to_count, permute_to, 2);
  auto source =
      Must(Selection::Ids(Blocks(kFrom, from_count, from_bytes), absl::MakeSpan(from_ids)));
  auto destination = Must(Selection::Ids(Blocks(kTo, to_count, to_bytes), absl::MakeSpan(to_ids)));
  const auto plan = Must(TransferPlan::Make(source, destination));

  const uint64_t piece = std::min(from_bytes, to_bytes);
  std::byte* from = *arena.Find({kFrom, 0});
  std::byte* to = *arena.Find({kTo, 0});
  std::vector<double> ours, plain;
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(SecondsOf([&] {
      const auto copier = Must(Copier::Make(plan, arena, arena, {.workers = threads}));
      OnThreads(threads, [&](int) { copier->Wait(); });
    }));
    plain.push_back(SecondsOf([&] {
      OnThreads(threads, [&](int thread) {
        const uint64_t pieces = total / piece;
        const uint64_t end = pieces * (thread + 1) / threads;
        for (uint64_t i = pieces * thread / threads; i < end; ++i) {
          const uint64_t at = i * piece;
          std::memcpy(to + to_ids[at / to_bytes] * to_bytes + at % to_bytes,
                      from + from_ids[at / from_bytes] * from_bytes + at % from_bytes, piece);
        }
      });
    }));
  }
  Row(name, total, threads, ours, plain);
}

// One of several tensor-parallel ranks takes its part of the heads of permuted blocks of 32 KiB.
void SplitHeads(uint64_t ranks, uint64_t total, int threads) {
  constexpr uint64_t kTokens = 16, kToken = 2048, kBlock = kTokens * kToken;
  const uint64_t part = kToken / ranks;
  const uint64_t blocks = total / (kTokens * part);
  Arena arena(blocks * kBlock);
  Section section;
  section.name = "heads";
  section.regions = {{kFrom, blocks * kBlock}};
  section.sets = {{kFrom, part, part, {{{1, 0}, {blocks, kBlock}, {kTokens, kToken}}}}};
  const std::vector<uint32_t> from_ids = Permuted(blocks, 1), to_ids = Permuted(blocks, 2);
  const auto plan = Must(TransferPlan::Make(
      Must(Selection::Ids(Must(PreparedList::Prepare(section, 0)), absl::MakeSpan(from_ids),
                          {kTokens, 1, 0})),
      Must(Selection::Ids(Blocks(kTo, blocks, kTokens * part), absl::MakeSpan(to_ids)))));
  std::byte* from = *arena.Find({kFrom, 0});
  std::byte* to = *arena.Find({kTo, 0});
  std::vector<double> ours, plain;
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(SecondsOf([&] {
      const auto copier = Must(Copier::Make(plan, arena, arena, {.workers = threads}));
      OnThreads(threads, [&](int) { copier->Wait(); });
    }));
    plain.push_back(SecondsOf([&] {
      OnThreads(threads, [&](int thread) {
        const uint64_t end = blocks * (thread + 1) / threads;
        for (uint64_t i = blocks * thread / threads; i < end; ++i) {
          for (uint64_t t = 0; t < kTokens; ++t) {
            std::memcpy(to + to_ids[i] * kTokens * part + t * part,
                        from + from_ids[i] * kBlock + t * kToken + part, part);
          }
        }
      });
    }));
  }
  Row(absl::StrCat(part, " B of each 2 KiB, permuted").c_str(), total, threads, ours, plain);
}

// Permuted blocks to messages of 1 MiB, and back; the buffer of one message, as between nodes.
void Messages(uint64_t bytes, uint64_t total) {
  constexpr uint64_t kMessage = 1 << 20;
  const uint64_t count = total / bytes;
  Arena arena(total);
  const std::vector<uint32_t> ids = Permuted(count, 1);
  const auto selection = Must(Selection::Ids(Blocks(kFrom, count, bytes), absl::MakeSpan(ids)));
  const Bases bases = Must(FindBases(selection, arena));
  std::byte* base = *arena.Find({kFrom, 0});
  std::vector<std::byte> message(kMessage);
  for (const bool gather : {true, false}) {
    std::vector<double> ours, plain;
    for (int round = 0; round < kRounds; ++round) {
      ours.push_back(SecondsOf([&] {
        for (uint64_t at = 0; at < total; at += kMessage) {
          if (gather) {
            Gather(selection, bases, at, absl::MakeSpan(message));
          } else {
            Scatter(selection, bases, at, message);
          }
        }
      }));
      plain.push_back(SecondsOf([&] {
        for (uint64_t at = 0; at < total; at += bytes) {
          std::byte* block = base + ids[at / bytes] * bytes;
          std::byte* slice = message.data() + at % kMessage;
          std::memcpy(gather ? slice : block, gather ? block : slice, bytes);
        }
      }));
    }
    const std::string name =
        absl::StrCat(bytes >> 10, " KiB blocks ", gather ? "to messages" : "from messages");
    Row(name.c_str(), total, 1, ours, plain);
  }
}

void CopyTable(int threads, uint64_t mib_max) {
  std::printf("%-34s %10s %3s %8s %8s %6s\n", "shape", "payload", "thr", "GB/s", "memcpy", "ratio");
  for (const uint64_t mib : {2, 32, 128, 512, 1024}) {
    if (mib > mib_max) break;
    for (const uint64_t kib : {4, 8, 18, 32}) {
      const uint64_t bytes = kib << 10;
      const std::string name = absl::StrCat(kib, " KiB");
      Copy((name + " permuted to contiguous").c_str(), bytes, true, bytes, false, mib << 20,
           threads);
      Copy((name + " contiguous to permuted").c_str(), bytes, false, bytes, true, mib << 20,
           threads);
      Copy((name + " permuted both sides").c_str(), bytes, true, bytes, true, mib << 20, threads);
    }
    Copy("32 KiB to 4 KiB, permuted", 32 << 10, true, 4 << 10, true, mib << 20, threads);
    Copy("4 KiB to 32 KiB, permuted", 4 << 10, true, 32 << 10, true, mib << 20, threads);
    SplitHeads(2, mib << 20, threads);
    SplitHeads(8, mib << 20, threads);
    if (threads == 1) {
      Messages(8 << 10, mib << 20);
      Messages(32 << 10, mib << 20);
    }
  }
}

// The thread's own time, so that whatever else runs on the machine does not count.
double CpuSecondsOf(const std::function<void()>& body) {
  const auto now = [] {
    timespec t;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double begin = now();
  body();
  return now() - begin;
}

void Post(const char* name, const std::function<void()>& body) {
  body();
  std::vector<double> times;
  for (int round = 0; round < 4 * kRounds; ++round) times.push_back(CpuSecondsOf(body));
  std::printf("%-58s %8.3f\n", name, Median(times) * 1e3);
}

void PostTable() {
  constexpr uint64_t kCount = 131'072, kLayers = 64, kBytes = 32 << 10;
  constexpr uint64_t kPool = 50 * kCount;  // 6.5 million blocks
  const auto pool = [&](uint64_t region) {
    Section section;
    section.name = "cache";
    section.regions = {{region, kPool * kBytes}};
    for (uint64_t layer = 0; layer < kLayers; ++layer) {
      section.sets.push_back({region,
                              layer * (kPool / kLayers) * kBytes,
                              kBytes,
                              {{{1, 0}, {1, 0}, {kPool / kLayers, kBytes}}}});
    }
    return Must(PreparedList::Prepare(std::move(section), 0));
  };
  const auto from = pool(kFrom), to = pool(kTo);
  const std::vector<uint32_t> all = Permuted(kPool, 1), others = Permuted(kPool, 2);
  const absl::Span<const uint32_t> ids = absl::MakeSpan(all).first(kCount);
  const absl::Span<const uint32_t> to_ids = absl::MakeSpan(others).first(kCount);
  std::vector<uint64_t> wide(ids.begin(), ids.end()), to_wide(to_ids.begin(), to_ids.end());
  std::vector<Descriptor> raw, to_raw;
  raw.reserve(kCount);
  to_raw.reserve(kCount);
  for (const uint32_t id : ids) raw.push_back({kFrom, id * kBytes, kBytes});
  for (const uint32_t id : to_ids) to_raw.push_back({kTo, id * kBytes, kBytes});
  const std::vector<RegionExtent> regions = {{kFrom, kPool * kBytes}, {kTo, kPool * kBytes}};
  const auto plan = [](absl::StatusOr<Selection> a, absl::StatusOr<Selection> b) {
    Must(TransferPlan::Make(Must(std::move(a)), Must(std::move(b))));
  };

  std::printf("posting 131072 descriptors out of 6.5 million, with all checks %19s\n", "ms");
  const Run some{7, kCount, 40}, others_run{11, kCount, 37};
  Post("one strided run a side", [&] {
    plan(Selection::Runs(from, absl::MakeConstSpan(&some, 1)),
         Selection::Runs(to, absl::MakeConstSpan(&others_run, 1)));
  });
  Post("the same within one list", [&] {
    const Run even{0, kCount, 2}, odd{1, kCount, 2};
    plan(Selection::Runs(to, absl::MakeConstSpan(&even, 1)),
         Selection::Runs(to, absl::MakeConstSpan(&odd, 1)));
  });
  const IdShape layers{1, kLayers, kPool / kLayers};
  std::vector<uint32_t> few = Permuted(kPool / kLayers, 3), to_few = Permuted(kPool / kLayers, 4);
  few.resize(kCount / kLayers);
  to_few.resize(kCount / kLayers);
  Post("2048 block ids, repeated for 64 layers", [&] {
    plan(Selection::Ids(from, absl::MakeConstSpan(few), layers),
         Selection::Ids(to, absl::MakeConstSpan(to_few), layers));
  });
  Post("ids of 32 bits, permuted",
       [&] { plan(Selection::Ids(from, ids), Selection::Ids(to, to_ids)); });
  Post("ids of 64 bits, permuted", [&] {
    plan(Selection::Ids(from, absl::MakeConstSpan(wide)),
         Selection::Ids(to, absl::MakeConstSpan(to_wide)));
  });
  Post("ids of 32 bits within one list", [&] {
    plan(Selection::Ids(to, absl::MakeSpan(others).subspan(kCount, kCount)),
         Selection::Ids(to, to_ids));
  });
  std::vector<Run> ones, to_ones;
  for (const uint32_t id : ids) ones.push_back({id, 1, 1});
  for (const uint32_t id : to_ids) to_ones.push_back({id, 1, 1});
  Post("runs of a piece, permuted",
       [&] { plan(Selection::Runs(from, ones), Selection::Runs(to, to_ones)); });
  Post("the same within one list", [&] {
    std::vector<Run> apart;
    for (const uint32_t id : absl::MakeSpan(others).subspan(kCount, kCount)) {
      apart.push_back({id, 1, 1});
    }
    plan(Selection::Runs(to, apart), Selection::Runs(to, to_ones));
  });
  Post("raw descriptors, permuted", [&] {
    plan(Selection::Raw(0, absl::MakeConstSpan(regions).first(1), raw),
         Selection::Raw(0, absl::MakeConstSpan(regions).subspan(1), to_raw));
  });
  Post("raw descriptors, both sides in the same regions",
       [&] { plan(Selection::Raw(0, regions, raw), Selection::Raw(0, regions, to_raw)); });
}

// What a GPU's worker is given for each: addresses and bytes, 24 in all.
void Walk(const char* name, const Selection& source, const Selection& destination) {
  constexpr uint64_t kPart = 4096;  // runs
  struct Moved {
    uint64_t source, destination, bytes;
  };
  const auto plan = Must(TransferPlan::Make(source, destination));
  std::vector<Moved> moved(kPart);
  const auto walk = [&](uint64_t part_bytes) {
    uint64_t runs = 0;
    for (uint64_t begin = 0; begin < plan->bytes(); begin += part_bytes) {
      PlanCursor cursor(*plan, begin, std::min(part_bytes, plan->bytes() - begin));
      for (CopyRun run; cursor.Next(&run); ++runs) {
        moved[runs % kPart] = {run.source_offset, run.destination_offset, run.bytes};
      }
    }
    return runs;
  };
  const uint64_t runs = walk(plan->bytes());
  const uint64_t part_bytes = std::max<uint64_t>(plan->bytes() / runs * kPart, 1);
  std::vector<double> whole, parts;
  for (int round = 0; round < 8 * kRounds; ++round) {
    whole.push_back(CpuSecondsOf([&] { walk(plan->bytes()); }));
    parts.push_back(CpuSecondsOf([&] { walk(part_bytes); }));
  }
  const double per = 1e9 / static_cast<double>(runs);
  std::printf("%-40s %8llu %8.1f %8.1f\n", name, static_cast<unsigned long long>(runs),
              Median(whole) * per, Median(parts) * per);
}

void WalkTable() {
  std::printf("%-40s %8s %8s %8s\n", "walking a plan, ns for a run", "runs", "whole", "parts");
  for (const uint64_t count : {uint64_t{32} << 10, uint64_t{128} << 10}) {
    const auto from = Blocks(kFrom, count, 4096), to = Blocks(kTo, count, 4096);
    const std::vector<uint32_t> ids = Permuted(count, 1), to_ids = Permuted(count, 2);
    const auto of = [](const std::shared_ptr<const PreparedList>& list,
                       const std::vector<uint32_t>& named) {
      return Must(Selection::Ids(list, absl::MakeConstSpan(named)));
    };
    Walk("ids, permuted both sides", of(from, ids), of(to, to_ids));
    Walk("ids, permuted to contiguous", of(from, ids), Must(Selection::All(to)));
    const auto runs_of = [](const std::shared_ptr<const PreparedList>& list,
                            const std::vector<uint32_t>& named) {
      std::vector<Run> runs;
      for (const uint32_t id : named) runs.push_back({id, 1, 1});
      return Must(Selection::Runs(list, runs));
    };
    Walk("runs of a piece, permuted both sides", runs_of(from, ids), runs_of(to, to_ids));
    const auto raw_of = [](uint64_t region, const std::vector<uint32_t>& named) {
      std::vector<Descriptor> raw;
      for (const uint32_t id : named) raw.push_back({region, id * uint64_t{4096}, 4096});
      const RegionExtent extent{region, named.size() * 4096};
      return Must(Selection::Raw(0, absl::MakeConstSpan(&extent, 1), raw));
    };
    Walk("raw descriptors, permuted both sides", raw_of(kFrom, ids), raw_of(kTo, to_ids));
    Section heads;
    heads.name = "heads";
    heads.regions = {{kFrom, count * 2048}};
    heads.sets = {{kFrom, 0, 512, {{{1, 0}, {count / 16, 32768}, {16, 2048}}}}};
    std::vector<uint32_t> few = Permuted(count / 16, 3), to_few = Permuted(count / 16, 4);
    Walk("16 heads of an id, permuted both sides",
         Must(Selection::Ids(Must(PreparedList::Prepare(heads, 0)), absl::MakeConstSpan(few),
                             {16, 1, 0})),
         Must(Selection::Ids(Blocks(kTo, count / 16, 8192), absl::MakeConstSpan(to_few))));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const uint64_t mib_max = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1024;
  const bool all = what == "all";
  if (threads < 1 || (what != "copy" && what != "post" && what != "walk" && !all)) {
    std::fprintf(stderr, "usage: shunt-p2p-bench [copy|post|walk|all] [THREADS [MIB_MAX]]\n");
    return 2;
  }
  if (what == "post" || all) PostTable();
  if (what == "walk" || all) WalkTable();
  if (what == "copy" || all) CopyTable(threads, mib_max);
  return 0;
}
