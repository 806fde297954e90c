// shunt-limits-cuda: what one GPU can do at most, and which part of that Shunt's kernels reach.
//
// `of` is the share of the bound: of the device's own copy (bytes read plus bytes written a
// second), or of PCIe's better direction for what crosses it. Everything signals its completion, as
// a worker's commands do. --sweep also tries other cuts of the work; --quick does so with fewer
// sizes and shorter measurements, in less than 15 s.
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
constexpr uint64_t kBatch = 16384;  // runs, as kRunsPerBatch of the worker's protocol

struct Options {
  int device = 0;
  bool sweep = false, quick = false;
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
      if (status.ok()) status = MakeSignals();
      if (status.ok()) status = (this->*part)();
      device_->FreeAll();
    }
    if (status.ok() && options_.sweep) status = MakeSignals();
    if (status.ok() && options_.sweep) status = Sweep();
    status.Update(WriteJson(options_.json, records_));
    return status;
  }

 private:
  // What a part's kernels signal, until its memory is freed.
  absl::Status MakeSignals() {
    const auto ticket = device_->Allocate(256);
    if (!ticket.ok()) return ticket.status();
    const auto word = device_->AllocatePinned(4096);
    if (!word.ok()) return word.status();
    signals_.ticket = reinterpret_cast<uint32_t*>(*ticket);
    signals_.completion = reinterpret_cast<uint64_t*>(word->device);
    signals_.completion_value = 1;
    word_ = reinterpret_cast<volatile uint64_t*>(word->host);
    return absl::OkStatus();
  }

  // `traffic` bytes in the time of `enqueue`, as a share of `bound`.
  absl::StatusOr<double> Line(const std::string& what, uint64_t bytes, int ranks, double traffic,
                              double bound, const std::function<absl::Status()>& enqueue) {
    const auto us = options_.quick ? device_->TimeUs(enqueue, 3, 4'000) : device_->TimeUs(enqueue);
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
                         const std::function<absl::Status(uint64_t)>& enqueue) {
    *word_ = 0;
    std::vector<double> times, calls;
    for (uint64_t i = 1; i <= 400; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const absl::Status status = enqueue(i);
      if (!status.ok()) return status;
      const auto called = std::chrono::steady_clock::now();
      const auto late = begin + std::chrono::seconds(5);
      while (*word_ != i) {
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
    const auto data = device_->Allocate(64 * kMi);
    if (!data.ok()) return data.status();
    const auto back_to_back =
        device_->TimeUs([&] { return kernels_->Signal(signals_, device_->stream()); });
    if (!back_to_back.ok()) return back_to_back.status();
    Print("signal_back_to_back", 0, 1, *back_to_back, 0, 0);
    absl::Status status;
    for (const bool large : {false, true}) {
      if (status.ok()) status = Calls(*data, large);
    }
    kernels_->set_cut({});
    if (!status.ok()) return status;
    return FewRuns(*data);
  }

  // Small operations in one form of their parameters: of few ranks, as they are, or of many.
  absl::Status Calls(gpu::DevicePtr data, bool large) {
    gpu::Cut cut;
    cut.large_forms = large;
    kernels_->set_cut(cut);
    const std::string form = large ? "_large_form" : "";
    absl::Status status = RoundTrip("signal" + form, 0, 1, [&](uint64_t i) {
      gpu::Signals signals = signals_;
      signals.completion_value = i;
      return kernels_->Signal(signals, device_->stream());
    });
    for (const int ranks : {2, 4}) {
      for (const uint64_t bytes : {kKi, 16 * kKi, 64 * kKi, kMi}) {
        if (!status.ok()) return status;
        gpu::ReduceParams params = Sum(DataType::kFloat32, ranks, bytes, data, 8 * kMi, 0);
        status = RoundTrip("all_reduce" + form, bytes, ranks, [&](uint64_t i) {
          params.signals.completion_value = i;
          return kernels_->Reduce(params, device_->stream());
        });
      }
    }
    gpu::MoveParams params{};
    params.runs = 1;
    params.bytes = 16 * kKi;
    params.signals = signals_;
    params.few[0] = {data, data + 32 * kMi, params.bytes};
    status.Update(RoundTrip("move" + form, params.bytes, 1, [&](uint64_t i) {
      params.signals.completion_value = i;
      return kernels_->Move(params, device_->stream());
    }));
    return status;
  }

  // A small batch: with its runs in the parameters, in pinned memory, and brought to the device.
  absl::Status FewRuns(gpu::DevicePtr data) {
    constexpr uint64_t kPiece = 16 * kKi;
    const auto table = device_->AllocatePinned(4096);
    const auto device_table = device_->Allocate(4096);
    if (!table.ok()) return table.status();
    if (!device_table.ok()) return device_table.status();
    absl::Status status;
    for (const uint64_t runs : {1, 16, 64}) {
      gpu::MoveParams params{};
      params.runs = static_cast<uint32_t>(runs);
      params.bytes = runs * kPiece;
      params.signals = signals_;
      Permute(data, data + 32 * kMi, kPiece, runs, reinterpret_cast<uint64_t*>(table->host));
      std::memcpy(params.few, table->host, runs * sizeof(gpu::RunWords));
      const auto move = [&](uint64_t i) {
        params.signals.completion_value = i;
        return kernels_->Move(params, device_->stream());
      };
      const std::string name = "move_" + std::to_string(runs) + "_runs";
      status.Update(RoundTrip(name + "_as_parameters", params.bytes, 1, move));
      params.run = reinterpret_cast<const gpu::RunWords*>(table->device);
      status.Update(RoundTrip(name + "_table_on_host", params.bytes, 1, move));
      params.run = reinterpret_cast<const gpu::RunWords*>(*device_table);
      status.Update(RoundTrip(name + "_table_copied", params.bytes, 1, [&](uint64_t i) {
        absl::Status all = device_->driver().CopyAsync(
            *device_table, table->device, runs * sizeof(gpu::RunWords), device_->stream());
        all.Update(move(i));
        return all;
      }));
    }
    return status;
  }

  // Of `ranks` contributions, `stride` apart, to results `out` behind them (0: in place).
  gpu::ReduceParams Sum(DataType type, int ranks, uint64_t bytes, gpu::DevicePtr memory,
                        uint64_t stride, uint64_t out) const {
    gpu::ReduceParams params{};
    params.dtype = static_cast<uint8_t>(type);
    params.redop = static_cast<uint8_t>(Redop::kSum);
    params.sources = params.destinations = static_cast<uint16_t>(ranks);
    params.divisor = 1;
    params.signals = signals_;
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
          if (options_.quick && ranks == 3 && bytes < kLargest) continue;
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
        params.signals = signals_;
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
                        uint64_t count, bool host, double factor, double bound) {
    gpu::MoveParams params{};
    params.run = reinterpret_cast<const gpu::RunWords*>(runs);
    params.runs = static_cast<uint32_t>(count);
    params.host = host ? 1 : 0;
    params.bytes = piece * count;
    params.signals = signals_;
    const std::string name = what + "_" + std::to_string(piece / kKi) + "k";
    return Line(name, piece * count, 1, factor * static_cast<double>(piece * count), bound,
                [&] { return kernels_->Move(params, device_->stream()); })
        .status();
  }

  absl::Status Moves() {
    const auto a = device_->Allocate(kGi), b = device_->Allocate(kGi);
    constexpr uint64_t kHost = 256 * kMi, kTable = kMi;
    const auto host = device_->AllocatePinned(kHost), table = device_->AllocatePinned(kTable);
    const auto device_table = device_->Allocate(kTable);
    for (const absl::Status& status :
         {a.status(), b.status(), host.status(), table.status(), device_table.status()}) {
      if (!status.ok()) return status;
    }
    absl::Status status;
    const auto permute = [&](uint64_t source, uint64_t destination, uint64_t piece, uint64_t runs) {
      Permute(source, destination, piece, runs, reinterpret_cast<uint64_t*>(table->host));
      status.Update(
          device_->driver().CopyAsync(*device_table, table->device, runs * 24, device_->stream()));
      status.Update(device_->driver().Synchronize(device_->stream()));
    };
    for (const uint64_t piece : {2 * kKi, 4 * kKi, 16 * kKi, 18 * kKi, 32 * kKi, 64 * kKi}) {
      for (const uint64_t total : {32 * kMi, kGi}) {
        const uint64_t runs = std::min(total / piece, kBatch);
        if (total != 32 * kMi && runs * piece <= 32 * kMi) continue;
        permute(*a, *b, piece, runs);
        status.Update(MoveLine("move", *device_table, piece, runs, false, 2.0, copy_));
      }
      if (options_.quick && piece != 2 * kKi && piece != 16 * kKi) continue;
      const uint64_t runs = std::min(kHost / piece, kBatch);
      permute(*a, host->device, piece, runs);
      status.Update(MoveLine("move_to_host", *device_table, piece, runs, true, 1.0, down_));
      permute(host->device, *a, piece, runs);
      status.Update(MoveLine("move_to_device", *device_table, piece, runs, true, 1.0, up_));
      if (!status.ok()) return status;
    }
    for (const uint64_t shift : {8, 4, 1}) {
      permute(*a, *b + shift, 16 * kKi, kBatch - 1);
      status.Update(MoveLine("move_off_by_" + std::to_string(shift), *device_table, 16 * kKi,
                             kBatch - 1, false, 2.0, copy_));
    }
    for (const uint64_t piece : {2 * kKi, 16 * kKi}) {
      permute(*a, *b, piece, kBatch);
      for (const uint64_t streams : {1, 2, 4}) {
        status.Update(Batches(piece, streams, table->device));
      }
    }
    // The same by a copy each.
    constexpr uint64_t kPiece = 16 * kKi, kPieces = 2048;
    permute(*a, *b, kPiece, kPieces);
    if (options_.quick) return status;
    const auto* words = reinterpret_cast<const uint64_t*>(table->host);
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

  // Full batches one after the other as an executor begins them, each after a copy of its table to
  // the device, by the CPU's clock.
  absl::Status Batches(uint64_t piece, uint64_t streams, gpu::DevicePtr table) {
    struct Lane {
      gpu::Stream stream;
      gpu::MoveParams params;
    };
    std::vector<Lane> lanes(streams);
    gpu::Driver& driver = device_->driver();
    constexpr uint64_t kTableBytes = kBatch * sizeof(gpu::RunWords);
    for (Lane& lane : lanes) {
      const auto stream = driver.CreateStream();
      if (!stream.ok()) return stream.status();
      const auto ticket = device_->Allocate(256);
      const auto copied = device_->Allocate(kTableBytes);
      if (!ticket.ok()) return ticket.status();
      if (!copied.ok()) return copied.status();
      lane = {*stream, {}};
      lane.params.run = reinterpret_cast<const gpu::RunWords*>(*copied);
      lane.params.runs = kBatch;
      lane.params.bytes = piece * kBatch;
      lane.params.signals = signals_;
      lane.params.signals.ticket = reinterpret_cast<uint32_t*>(*ticket);
    }
    const auto run = [&](uint64_t rounds) {
      absl::Status status;
      for (uint64_t i = 0; i < rounds; ++i) {
        Lane& lane = lanes[i % streams];
        const auto to = reinterpret_cast<uint64_t>(lane.params.run);
        status.Update(driver.CopyAsync(to, table, kTableBytes, lane.stream));
        status.Update(kernels_->Move(lane.params, lane.stream));
      }
      for (const Lane& lane : lanes) status.Update(driver.Synchronize(lane.stream));
      return status;
    };
    absl::Status status = run(streams);
    constexpr uint64_t kRounds = 400;
    const auto begin = std::chrono::steady_clock::now();
    status.Update(run(kRounds));
    const auto end = std::chrono::steady_clock::now();
    for (const Lane& lane : lanes) driver.DestroyStream(lane.stream);
    if (!status.ok()) return status;
    const double us =
        std::chrono::duration<double, std::micro>(end - begin).count() / double{kRounds};
    const auto bytes = piece * kBatch;
    Print(
        "move_batches_" + std::to_string(streams) + "_streams_" + std::to_string(piece / kKi) + "k",
        bytes, 1, us, 2.0 * static_cast<double>(bytes) / 1e3 / us, copy_);
    return status;
  }

  absl::Status SweepReductions(gpu::DevicePtr memory, uint64_t bytes) {
    for (const uint32_t threads : {64, 128, 256}) {
      for (const uint32_t steps : {1, 2, 4}) {
        gpu::Cut cut;
        cut.reduce_threads = threads;
        cut.reduce_steps = steps;
        kernels_->set_cut(cut);
        for (const auto& [type, ranks] : {std::pair(DataType::kFloat32, 2),
                                          {DataType::kBfloat16, 2},
                                          {DataType::kFloat32, 3},
                                          {DataType::kFloat32, 4},
                                          {DataType::kBfloat16, 4},
                                          {DataType::kFloat32, 8}}) {
          auto params = Sum(type, ranks, bytes, memory, bytes, 8 * bytes);
          const std::string name =
              std::string(Name(type)) + "_" + std::to_string(threads) + "x" + std::to_string(steps);
          auto rate =
              Line("all_reduce_" + name, bytes, ranks, 2.0 * ranks * static_cast<double>(bytes),
                   copy_, [&] { return kernels_->Reduce(params, device_->stream()); });
          if (!rate.ok()) return rate.status();
          if (ranks != 4) continue;
          params.scatter = 1;
          params.count /= 4;
          rate = Line("reduce_scatter_" + name, bytes, ranks, 5.0 * static_cast<double>(bytes),
                      copy_, [&] { return kernels_->Reduce(params, device_->stream()); });
          if (!rate.ok()) return rate.status();
        }
      }
    }
    return absl::OkStatus();
  }

  // From which size on is a launch for the signals alone the quicker way to tell?
  absl::Status SweepSignals(gpu::DevicePtr memory, uint64_t stride) {
    absl::Status status;
    for (const uint64_t bytes : {kMi, 4 * kMi, 8 * kMi, 16 * kMi, 64 * kMi}) {
      gpu::ReduceParams params = Sum(DataType::kFloat32, 4, bytes, memory, stride, 8 * stride);
      for (const bool apart : {false, true}) {
        gpu::Cut cut;
        cut.signal_blocks = apart ? 0 : 1 << 20;
        kernels_->set_cut(cut);
        status.Update(RoundTrip(apart ? "all_reduce_signals_apart" : "all_reduce_signals_within",
                                bytes, 4, [&](uint64_t i) {
                                  params.signals.completion_value = i;
                                  return kernels_->Reduce(params, device_->stream());
                                }));
      }
    }
    return status;
  }

  // Up to which size is one block the quicker one?
  absl::Status SweepAlone(gpu::DevicePtr memory, uint64_t stride) {
    absl::Status status;
    for (const uint32_t steps : {0, 1, 2, 4, 8}) {
      gpu::Cut cut;
      cut.alone_steps = steps;
      kernels_->set_cut(cut);
      for (const uint64_t bytes : {kKi, 4 * kKi, 8 * kKi, 16 * kKi, 32 * kKi, 64 * kKi}) {
        gpu::ReduceParams params = Sum(DataType::kFloat32, 2, bytes, memory, stride, 0);
        status.Update(
            RoundTrip("all_reduce_alone_to_" + std::to_string(steps), bytes, 2, [&](uint64_t i) {
              params.signals.completion_value = i;
              return kernels_->Reduce(params, device_->stream());
            }));
      }
    }
    return status;
  }

  absl::Status Sweep() {
    constexpr uint64_t kBytes = 256 * kMi;
    const auto memory = device_->Allocate(2 * 8 * kBytes);
    const auto table = device_->AllocatePinned(kMi);
    const auto device_table = device_->Allocate(kMi);
    for (const absl::Status& status : {memory.status(), table.status(), device_table.status()}) {
      if (!status.ok()) return status;
    }
    absl::Status status = SweepAlone(*memory, kBytes);
    status.Update(SweepSignals(*memory, kBytes));
    status.Update(SweepReductions(*memory, kBytes));
    for (const uint32_t warp_part : {0, 2048, 4096}) {
      gpu::Cut cut;
      cut.warp_part = warp_part;
      kernels_->set_cut(cut);
      for (const uint64_t piece : {2 * kKi, 4 * kKi}) {
        Permute(*memory, *memory + 8 * kBytes, piece, kBatch,
                reinterpret_cast<uint64_t*>(table->host));
        status.Update(device_->driver().CopyAsync(*device_table, table->device, kBatch * 24,
                                                  device_->stream()));
        status.Update(MoveLine("move_warps_to_" + std::to_string(warp_part), *device_table, piece,
                               kBatch, false, 2.0, copy_));
      }
    }
    for (const auto& [threads, part] : {std::pair(32u, 2048u),
                                        {64u, 2048u},
                                        {64u, 4096u},
                                        {64u, 8192u},
                                        {128u, 4096u},
                                        {128u, 8192u},
                                        {256u, 16384u}}) {
      gpu::Cut cut;
      cut.copy_threads = threads;
      cut.copy_part = part;
      kernels_->set_cut(cut);
      const std::string name = "_" + std::to_string(threads) + "x" + std::to_string(part);
      for (const uint64_t piece : {2 * kKi, 4 * kKi, 16 * kKi, 18 * kKi, 32 * kKi}) {
        Permute(*memory, *memory + 8 * kBytes, piece, kBatch,
                reinterpret_cast<uint64_t*>(table->host));
        status.Update(device_->driver().CopyAsync(*device_table, table->device, kBatch * 24,
                                                  device_->stream()));
        status.Update(MoveLine("move" + name, *device_table, piece, kBatch, false, 2.0, copy_));
      }
      gpu::SpreadParams params{};
      params.signals = signals_;
      params.segments = params.destinations = 4;
      params.bytes = kBytes / 4;
      for (uint64_t r = 0; r < 4; ++r) {
        params.source[r] = *memory + r * kBytes;
        params.destination[r] = params.source[r] + 8 * kBytes;
      }
      params.pattern = gpu::SpreadPattern::kPairs;
      status.Update(Line("all_to_all" + name, kBytes, 4, 8.0 * kBytes, copy_, [&] {
                      return kernels_->Spread(params, device_->stream());
                    }).status());
      params.pattern = gpu::SpreadPattern::kFan;
      status.Update(Line("all_gather" + name, kBytes, 4, 5.0 * kBytes, copy_, [&] {
                      return kernels_->Spread(params, device_->stream());
                    }).status());
      if (!status.ok()) return status;
    }
    kernels_->set_cut({});
    return status;
  }

  const Options options_;
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<gpu::Kernels> kernels_;
  std::vector<Record> records_;
  double copy_ = 0, up_ = 0, down_ = 0;
  gpu::Signals signals_{};
  volatile uint64_t* word_ = nullptr;  // signals_.completion, as the CPU sees it
};

int Usage() {
  std::fprintf(stderr,
               "usage: shunt-limits-cuda [--device N] [--sweep | --quick] [--json FILE]\n"
               "  --device N   the GPU, as the driver counts; default 0\n"
               "  --sweep      also tries other cuts of the work\n"
               "  --quick      the same with fewer sizes and shorter measurements\n"
               "  --json FILE  results as JSON; \"-\" is stdout\n");
  return 2;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--sweep") {
      options.sweep = true;
    } else if (argument == "--quick") {
      options.sweep = options.quick = true;
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
