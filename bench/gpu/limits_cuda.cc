// shunt-limits-cuda: what one GPU can do at most, and which part of that Shunt's kernels reach.
//
// `of` is the share of the bound: of the device's own copy (bytes read plus bytes written a
// second), or of PCIe's better direction for what crosses it. --sweep also tries other grids.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gpu/device.h"
#include "bench/harness/record.h"
#include "runtime/core/types.h"
#include "runtime/gpu/kernels/kernels.h"

namespace shunt::bench {
namespace {

constexpr uint64_t kKi = 1 << 10, kMi = 1 << 20, kGi = 1 << 30;

struct Options {
  int device = 0;
  bool sweep = false;
  std::string json;
};

class CudaLimits {
 public:
  CudaLimits(const Options& options, std::unique_ptr<Device> device,
             std::unique_ptr<gpu::Kernels> kernels)
      : options_(options), device_(std::move(device)), kernels_(std::move(kernels)) {}

  absl::Status Run() {
    const gpu::DeviceFacts& facts = device_->facts();
    std::printf("# %s, %d multiprocessors, %s\n", facts.name.c_str(), facts.multiprocessors,
                facts.pci_bus_id.c_str());
    std::printf(
        "# GB/s: 10^9 bytes a second, read plus written on the device, one way over PCIe\n");
    std::printf("# %-34s %12s %8s %11s %9s %6s\n", "what", "bytes", "ranks", "time (us)", "GB/s",
                "of");
    absl::Status status = Copies();
    for (const auto part : {&CudaLimits::Launches, &CudaLimits::Reductions, &CudaLimits::Spreads,
                            &CudaLimits::Moves}) {
      if (status.ok()) status = (this->*part)();
      device_->FreeAll();
    }
    if (status.ok() && options_.sweep) status = Sweep();
    status.Update(WriteJson(options_.json, records_));
    return status;
  }

 private:
  // `traffic` bytes in the time of `enqueue`, as a share of `bound`.
  absl::StatusOr<double> Line(const std::string& what, uint64_t bytes, int ranks, double traffic,
                              double bound, const std::function<absl::Status()>& enqueue) {
    const auto us = device_->TimeUs(enqueue);
    if (!us.ok()) {
      return absl::Status(us.status().code(), what + ": " + std::string(us.status().message()));
    }
    const double rate = traffic / 1e3 / *us;
    Print(what, bytes, ranks, *us, rate, bound);
    return rate;
  }

  void Print(const std::string& what, uint64_t bytes, int ranks, double us, double rate,
             double bound) {
    std::printf("  %-34s %12lu %8d %11.2f %9.1f", what.c_str(), bytes, ranks, us, rate);
    if (bound > 0) std::printf(" %6.3f", rate / bound);
    std::printf("\n");
    std::fflush(stdout);
    records_.push_back(Record()
                           .Set("op", what)
                           .Set("bytes", bytes)
                           .Set("ranks", ranks)
                           .Set("memory", "cuda")
                           .Set("time_us", us)
                           .Set("bound", bound > 0 ? bound : rate)
                           .Set("value", rate));
  }

  absl::Status Copies() {
    const auto a = device_->Allocate(kGi), b = device_->Allocate(kGi);
    const auto host = device_->AllocatePinned(256 * kMi);
    for (const absl::Status& status : {a.status(), b.status(), host.status()}) {
      if (!status.ok()) return status;
    }
    const auto copy = [&](gpu::DevicePtr to, gpu::DevicePtr from, uint64_t bytes) {
      return [this, to, from, bytes] {
        return device_->driver().CopyAsync(to, from, bytes, device_->stream());
      };
    };
    for (const uint64_t bytes : {64 * kMi, 256 * kMi, kGi}) {
      const auto rate =
          Line("copy", bytes, 1, 2.0 * static_cast<double>(bytes), 0, copy(*b, *a, bytes));
      if (!rate.ok()) return rate.status();
      copy_ = std::max(copy_, *rate);
    }
    const auto up =
        Line("pcie_to_device", 256 * kMi, 1, 256.0 * kMi, 0, copy(*a, host->device, 256 * kMi));
    if (!up.ok()) return up.status();
    const auto down =
        Line("pcie_to_host", 256 * kMi, 1, 256.0 * kMi, 0, copy(host->device, *a, 256 * kMi));
    if (!down.ok()) return down.status();
    up_ = *up;
    down_ = *down;
    return absl::OkStatus();
  }

  // From before the call until the CPU sees the completion word.
  absl::Status RoundTrip(const std::string& what, uint64_t bytes, int ranks,
                         volatile uint64_t* word,
                         const std::function<absl::Status(uint64_t)>& enqueue) {
    std::vector<double> times, calls;
    for (uint64_t i = 1; i <= 400; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const absl::Status status = enqueue(i);
      if (!status.ok()) return status;
      const auto called = std::chrono::steady_clock::now();
      const auto late = begin + std::chrono::seconds(5);
      while (*word != i) {
        if (std::chrono::steady_clock::now() > late) {
          return absl::DeadlineExceededError(what + ": no completion within 5 s");
        }
      }
      const auto end = std::chrono::steady_clock::now();
      calls.push_back(std::chrono::duration<double, std::micro>(called - begin).count());
      times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
    }
    Print(what + "_call", bytes, ranks, Median(calls), 0, 0);
    Print(what + "_round_trip", bytes, ranks, Median(times), 0, 0);
    return device_->driver().Synchronize(device_->stream());
  }

  absl::Status Launches() {
    const auto host = device_->AllocatePinned(4096);
    const auto ticket = device_->Allocate(256);
    const auto data = device_->Allocate(64 * kMi);
    for (const absl::Status& status : {host.status(), ticket.status(), data.status()}) {
      if (!status.ok()) return status;
    }
    const auto word = reinterpret_cast<volatile uint64_t*>(host->host);
    gpu::Signals signals{};
    signals.ticket = reinterpret_cast<uint32_t*>(*ticket);
    signals.completion = reinterpret_cast<uint64_t*>(host->device);
    const auto back_to_back =
        device_->TimeUs([&] { return kernels_->Signal(signals, device_->stream()); });
    if (!back_to_back.ok()) return back_to_back.status();
    Print("signal_back_to_back", 0, 1, *back_to_back, 0, 0);
    absl::Status status = RoundTrip("signal", 0, 1, word, [&](uint64_t i) {
      signals.completion_value = i;
      return kernels_->Signal(signals, device_->stream());
    });
    *word = 0;
    for (const uint64_t bytes : {kKi, 64 * kKi, kMi}) {
      if (!status.ok()) return status;
      gpu::ReduceParams params = Sum(DataType::kFloat32, 4, bytes, *data, 8 * kMi, 0);
      params.signals = signals;
      status = RoundTrip("all_reduce", bytes, 4, word, [&](uint64_t i) {
        params.signals.completion_value = i;
        return kernels_->Reduce(params, device_->stream());
      });
      *word = 0;
    }
    return status;
  }

  // Of `ranks` contributions, `stride` apart, to results `out` behind them (0: in place).
  static gpu::ReduceParams Sum(DataType type, int ranks, uint64_t bytes, gpu::DevicePtr memory,
                               uint64_t stride, uint64_t out) {
    gpu::ReduceParams params{};
    params.dtype = static_cast<uint8_t>(type);
    params.redop = static_cast<uint8_t>(Redop::kSum);
    params.sources = params.destinations = static_cast<uint16_t>(ranks);
    params.divisor = 1;
    params.count = bytes / SizeOf(type);
    for (int r = 0; r < ranks; ++r) {
      params.source[r] = memory + static_cast<uint64_t>(r) * stride;
      params.destination[r] = params.source[r] + out;
    }
    return params;
  }

  absl::Status Reductions() {
    constexpr uint64_t kLargest = 256 * kMi;
    const auto memory = device_->Allocate(2 * 8 * kLargest);
    if (!memory.ok()) return memory.status();
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      for (const int ranks : {2, 3, 4, 8}) {
        for (const uint64_t bytes : {64 * kMi, kLargest}) {
          const auto params = Sum(type, ranks, bytes, *memory, kLargest, 8 * kLargest);
          const auto rate = Line("all_reduce_" + std::string(Name(type)), bytes, ranks,
                                 2.0 * ranks * static_cast<double>(bytes), copy_,
                                 [&] { return kernels_->Reduce(params, device_->stream()); });
          if (!rate.ok()) return rate.status();
        }
      }
      const auto in_place = Sum(type, 4, kLargest, *memory, kLargest, 0);
      auto rate =
          Line("all_reduce_in_place_" + std::string(Name(type)), kLargest, 4, 8.0 * kLargest, copy_,
               [&] { return kernels_->Reduce(in_place, device_->stream()); });
      if (!rate.ok()) return rate.status();
      auto scatter = Sum(type, 4, kLargest / 4, *memory, kLargest, 8 * kLargest);
      scatter.scatter = 1;
      rate = Line("reduce_scatter_" + std::string(Name(type)), kLargest, 4, 5.0 * kLargest, copy_,
                  [&] { return kernels_->Reduce(scatter, device_->stream()); });
      if (!rate.ok()) return rate.status();
    }
    // Other formats and operators, on the loop for any.
    for (const DataType type : {DataType::kInt8, DataType::kFloat8E4M3, DataType::kFloat8E5M2,
                                DataType::kInt32, DataType::kInt64, DataType::kFloat64}) {
      const auto params = Sum(type, 4, kLargest, *memory, kLargest, 8 * kLargest);
      const auto rate = Line("all_reduce_" + std::string(Name(type)), kLargest, 4, 8.0 * kLargest,
                             copy_, [&] { return kernels_->Reduce(params, device_->stream()); });
      if (!rate.ok()) return rate.status();
    }
    auto odd = Sum(DataType::kBfloat16, 4, kLargest / 2, *memory, kLargest, 8 * kLargest);
    odd.source[1] += 2;
    auto rate = Line("all_reduce_misaligned_bfloat16", kLargest / 2, 4, 4.0 * kLargest, copy_,
                     [&] { return kernels_->Reduce(odd, device_->stream()); });
    return rate.status();
  }

  absl::Status Spreads() {
    constexpr uint64_t kLargest = 256 * kMi;
    const auto memory = device_->Allocate(2 * 8 * kLargest);
    if (!memory.ok()) return memory.status();
    for (const int ranks : {2, 4, 8}) {
      for (const uint64_t bytes : {64 * kMi, kLargest}) {
        gpu::SpreadParams params{};
        params.segments = params.destinations = static_cast<uint32_t>(ranks);
        params.bytes = bytes / static_cast<uint64_t>(ranks);
        for (int r = 0; r < ranks; ++r) {
          params.source[r] = *memory + static_cast<uint64_t>(r) * kLargest;
          params.destination[r] = params.source[r] + 8 * kLargest;
        }
        params.pattern = gpu::SpreadPattern::kPairs;
        auto rate = Line("all_to_all", bytes, ranks, 2.0 * ranks * static_cast<double>(bytes),
                         copy_, [&] { return kernels_->Spread(params, device_->stream()); });
        if (!rate.ok()) return rate.status();
        params.pattern = gpu::SpreadPattern::kFan;
        rate = Line("all_gather", bytes, ranks, (1.0 + ranks) * static_cast<double>(bytes), copy_,
                    [&] { return kernels_->Spread(params, device_->stream()); });
        if (!rate.ok()) return rate.status();
      }
    }
    return absl::OkStatus();
  }

  // Pieces of `piece` bytes, from permuted places to other permuted places.
  static void Permute(uint64_t source, uint64_t destination, uint64_t piece, uint64_t runs,
                      uint64_t* words) {
    std::vector<uint64_t> from(runs), to(runs);
    std::iota(from.begin(), from.end(), 0);
    std::iota(to.begin(), to.end(), 0);
    std::mt19937_64 random(1);
    std::shuffle(from.begin(), from.end(), random);
    std::shuffle(to.begin(), to.end(), random);
    for (uint64_t i = 0; i < runs; ++i) {
      words[3 * i] = source + from[i] * piece;
      words[3 * i + 1] = destination + to[i] * piece;
      words[3 * i + 2] = piece;
    }
  }

  absl::Status MoveLine(const std::string& what, gpu::DevicePtr runs, uint64_t piece,
                        uint64_t count, double factor, double bound) {
    gpu::MoveParams params{};
    params.run = reinterpret_cast<const void*>(runs);
    params.runs = static_cast<uint32_t>(count);
    params.longest = static_cast<uint32_t>(piece);
    const std::string name = what + "_" + std::to_string(piece / kKi) + "k";
    return Line(name, piece * count, 1, factor * static_cast<double>(piece * count), bound,
                [&] { return kernels_->Move(params, device_->stream()); })
        .status();
  }

  absl::Status Moves() {
    const auto a = device_->Allocate(kGi), b = device_->Allocate(kGi);
    constexpr uint64_t kHost = 256 * kMi, kTable = 16 * kMi;
    const auto host = device_->AllocatePinned(kHost), table = device_->AllocatePinned(kTable);
    const auto device_table = device_->Allocate(kTable);
    for (const absl::Status& status :
         {a.status(), b.status(), host.status(), table.status(), device_table.status()}) {
      if (!status.ok()) return status;
    }
    auto* words = reinterpret_cast<uint64_t*>(table->host);
    absl::Status status;
    for (const uint64_t piece : {2 * kKi, 4 * kKi, 16 * kKi, 18 * kKi, 32 * kKi, 64 * kKi}) {
      for (const uint64_t total : {32 * kMi, kGi}) {
        const uint64_t runs = std::min(total / piece, uint64_t{16384});
        if (total != 32 * kMi && runs * piece <= 32 * kMi) continue;
        Permute(*a, *b, piece, runs, words);
        status.Update(MoveLine("move", table->device, piece, runs, 2.0, copy_));
        status.Update(device_->driver().CopyAsync(*device_table, table->device, runs * 24,
                                                  device_->stream()));
        status.Update(MoveLine("move_table_on_device", *device_table, piece, runs, 2.0, copy_));
      }
      const uint64_t runs = std::min(kHost / piece, uint64_t{16384});
      Permute(*a, host->device, piece, runs, words);
      status.Update(MoveLine("move_to_host", table->device, piece, runs, 1.0, down_));
      Permute(host->device, *a, piece, runs, words);
      status.Update(MoveLine("move_to_device", table->device, piece, runs, 1.0, up_));
      if (!status.ok()) return status;
    }
    for (const uint64_t shift : {8, 4, 1}) {
      Permute(*a, *b + shift, 16 * kKi, 16383, words);
      status.Update(MoveLine("move_off_by_" + std::to_string(shift), table->device, 16 * kKi, 16383,
                             2.0, copy_));
    }
    // The same by a copy each.
    constexpr uint64_t kPiece = 16 * kKi, kPieces = 2048;
    Permute(*a, *b, kPiece, kPieces, words);
    status.Update(Line("memcpy_each_16k", kPiece * kPieces, 1, 2.0 * kPiece * kPieces, copy_, [&] {
                    absl::Status all;
                    for (uint64_t i = 0; i < kPieces; ++i) {
                      all.Update(device_->driver().CopyAsync(words[3 * i + 1], words[3 * i], kPiece,
                                                             device_->stream()));
                    }
                    return all;
                  }).status());
    return status;
  }

  absl::Status Sweep() {
    constexpr uint64_t kBytes = 256 * kMi;
    const auto memory = device_->Allocate(2 * 8 * kBytes);
    const auto table = device_->AllocatePinned(kMi);
    if (!memory.ok()) return memory.status();
    if (!table.ok()) return table.status();
    for (const gpu::Grid grid : {gpu::Grid{64, 16},
                                 {64, 32},
                                 {64, 64},
                                 {64, 256},
                                 {64, 4096},
                                 {128, 8},
                                 {128, 16},
                                 {128, 64},
                                 {128, 512},
                                 {256, 4},
                                 {256, 8},
                                 {256, 16},
                                 {256, 32},
                                 {256, 128},
                                 {256, 2048}}) {
      const std::string name =
          "_" + std::to_string(grid.threads) + "x" + std::to_string(grid.blocks_per_sm);
      kernels_->set_reduce_grid(grid);
      kernels_->set_copy_grid(grid);
      for (const auto& [type, ranks] : {std::pair(DataType::kFloat32, 2),
                                        {DataType::kFloat32, 4},
                                        {DataType::kBfloat16, 4},
                                        {DataType::kFloat32, 8}}) {
        const auto params = Sum(type, ranks, kBytes, *memory, kBytes, 8 * kBytes);
        const auto rate = Line("all_reduce_" + std::string(Name(type)) + name, kBytes, ranks,
                               2.0 * ranks * kBytes, copy_,
                               [&] { return kernels_->Reduce(params, device_->stream()); });
        if (!rate.ok()) return rate.status();
      }
      absl::Status status;
      for (const uint64_t piece : {2 * kKi, 16 * kKi, 64 * kKi}) {
        Permute(*memory, *memory + 8 * kBytes, piece, 16384,
                reinterpret_cast<uint64_t*>(table->host));
        status.Update(MoveLine("move" + name, table->device, piece, 16384, 2.0, copy_));
      }
      gpu::SpreadParams params{};
      params.pattern = gpu::SpreadPattern::kPairs;
      params.segments = params.destinations = 4;
      params.bytes = kBytes / 4;
      for (uint64_t r = 0; r < 4; ++r) {
        params.source[r] = *memory + r * kBytes;
        params.destination[r] = params.source[r] + 8 * kBytes;
      }
      status.Update(Line("all_to_all" + name, kBytes, 4, 8.0 * kBytes, copy_, [&] {
                      return kernels_->Spread(params, device_->stream());
                    }).status());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const Options options_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<gpu::Kernels> kernels_;
  std::vector<Record> records_;
  double copy_ = 0, up_ = 0, down_ = 0;
};

int Usage() {
  std::fprintf(stderr,
               "usage: shunt-limits-cuda [--device N] [--sweep] [--json FILE]\n"
               "  --device N   the GPU, as the driver counts; default 0\n"
               "  --sweep      also tries other grids of the kernels\n"
               "  --json FILE  results as JSON; \"-\" is stdout\n");
  return 2;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--sweep") {
      options.sweep = true;
    } else if (argument == "--json" && i + 1 < argc) {
      options.json = argv[++i];
    } else if (argument == "--device" && i + 1 < argc) {
      options.device = std::atoi(argv[++i]);
    } else {
      return Usage();
    }
  }
  const auto complain = [](const absl::Status& status) {
    std::fprintf(stderr, "limits: %s\n", std::string(status.message()).c_str());
    return absl::IsUnavailable(status) || absl::IsUnimplemented(status) ? 3 : 1;
  };
  auto device = Device::Open(options.device);
  if (!device.ok()) return complain(device.status());
  auto kernels = gpu::Kernels::Load(&(*device)->driver(), (*device)->facts());
  if (!kernels.ok()) return complain(kernels.status());
  CudaLimits limits(options, *std::move(device), *std::move(kernels));
  const absl::Status status = limits.Run();
  return status.ok() ? 0 : complain(status);
}

}  // namespace
}  // namespace shunt::bench

int main(int argc, char** argv) { return shunt::bench::Main(argc, argv); }
