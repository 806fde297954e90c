#include "runtime/gpu/kernels/kernels.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/types.h"
#include "runtime/gpu/kernels/forms.h"
#include "runtime/gpu/kernels/images.h"

namespace shunt::gpu {
namespace {

constexpr int kOldestMajor = 8;  // compute capability, as CMakeLists.txt names it to nvcc
constexpr uint32_t kWarp = 32;
constexpr uint32_t kVector = 16;
// A grid of fewer blocks than multiprocessors has smaller ones, and copies of a vector a thread.
constexpr uint32_t kSmallThreads = 64, kSmallPart = 1024;
constexpr uint32_t kAloneThreads = 256;  // of a grid's only block
// A grid that stays, for what gains nothing from more: threads and blocks of a multiprocessor.
constexpr uint32_t kStayThreads = 256, kStayBlocks = 8;
// The same where memory of the host takes part, and what a warp takes at least.
constexpr uint32_t kHostThreads = 64, kHostBlocks = 16, kHostPart = 512;

constexpr uint64_t kBlocksMax = INT32_MAX;

// By number of sources.
struct Form {
  int sources;
  uint32_t vectors;  // a thread reads of each source at once
};
constexpr Form kForm[] = {{0, 1}, {2, 2}, {4, 1}, {8, 1}};

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

uint64_t RoundUp(uint64_t a, uint64_t to) { return CeilDiv(a, to) * to; }

bool HasForms(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

absl::Status Wrong(absl::string_view what, uint64_t seen, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(what, " ", seen, ", expected ", expected));
}

absl::Status Check(const Signals& signals) {
  if (signals.count > kRanksMax) return Wrong("signals", signals.count, "at most 128");
  return absl::OkStatus();
}

bool IsCopy(const ReduceParams& params) {
  const auto redop = static_cast<Redop>(params.redop);
  if (params.sources != 1 || redop == Redop::kPremulSum) return false;
  return redop != Redop::kAvg || params.divisor == 1;
}

// All pointers agree modulo a vector, for every block of a scatter.
bool Agree(const ReduceParams& params, uint64_t bytes) {
  uint64_t differ = params.scatter != 0 ? bytes : 0;
  for (int k = 0; k < params.sources; ++k) differ |= params.source[k] ^ params.source[0];
  for (int d = 0; d < params.destinations; ++d) differ |= params.destination[d] ^ params.source[0];
  return differ % kVector == 0;
}

}  // namespace

Kernels::Kernels(Driver* driver, int multiprocessors)
    : driver_(driver), multiprocessors_(static_cast<uint32_t>(multiprocessors)) {}

Kernels::~Kernels() {
  for (const Module module : modules_) driver_->UnloadModule(module);
}

absl::StatusOr<std::unique_ptr<Kernels>> Kernels::Load(Driver* driver, const DeviceFacts& device) {
  if (device.compute_major < kOldestMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", device.ordinal, " (", device.name, ") has compute capability ",
                     device.compute_major, ".", device.compute_minor, ", expected at least ",
                     kOldestMajor, ".0"));
  }
  std::unique_ptr<Kernels> kernels(new Kernels(driver, std::max(1, device.multiprocessors)));
  absl::Status status = kernels->LoadAll();
  if (status.ok()) status = kernels->RunEach();
  if (!status.ok()) return status;
  return kernels;
}

absl::Status Kernels::LoadAll() {
  const auto load = [this](const unsigned char* image) -> absl::StatusOr<Module> {
    absl::StatusOr<Module> module = driver_->LoadModule(image);
    if (module.ok()) modules_.push_back(*module);
    return module;
  };
  const auto find = [this](Module module, const std::string& name, bool only_small,
                           Kernel* kernel) {
    SHUNT_ASSIGN_OR_RETURN(kernel->small, driver_->FindFunction(module, name.c_str()));
    if (only_small) return absl::OkStatus();
    SHUNT_ASSIGN_OR_RETURN(kernel->large, driver_->FindFunction(module, (name + "_large").c_str()));
    return absl::OkStatus();
  };

  const struct {
    const unsigned char* image;
    std::vector<DataType> types;
  } kReduce[] = {
      {shunt_gpu_image_reduce_int,
       {DataType::kInt8, DataType::kUint8, DataType::kInt32, DataType::kUint32, DataType::kInt64,
        DataType::kUint64}},
      {shunt_gpu_image_reduce_half, {DataType::kFloat16, DataType::kBfloat16}},
      {shunt_gpu_image_reduce_float, {DataType::kFloat32, DataType::kFloat64}},
      {shunt_gpu_image_reduce_float8, {DataType::kFloat8E4M3, DataType::kFloat8E5M2}},
  };
  for (const auto& [image, types] : kReduce) {
    const absl::StatusOr<Module> module = load(image);
    if (!module.ok()) return module.status();
    for (const DataType type : types) {
      for (int form = 0; form < (HasForms(type) ? kForms : 1); ++form) {
        std::string name = "shunt_reduce_" + std::string(Name(type));
        if (form > 0) name += "_" + std::to_string(kForm[form].sources);
        SHUNT_RETURN_IF_ERROR(
            find(*module, name, form > 0, &reduce_[static_cast<int>(type)][form]));
      }
    }
  }
  const absl::StatusOr<Module> module = load(shunt_gpu_image_move);
  if (!module.ok()) return module.status();
  absl::Status status = find(*module, "shunt_spread", false, &spread_);
  status.Update(find(*module, "shunt_move", false, &move_));
  status.Update(find(*module, "shunt_move_host", false, &move_host_));
  status.Update(find(*module, "shunt_signal", false, &signal_));
  return status;
}

// A driver that loads lazily does it at a kernel's first launch, and may wait for the whole context
// then: each is launched here, with nothing to do.
absl::Status Kernels::RunEach() {
  const absl::StatusOr<Stream> stream = driver_->CreateStream();
  if (!stream.ok()) return stream.status();
  LaunchShape shape;
  shape.threads = kWarp;
  absl::Status status;
  const auto run = [&](const Kernel& kernel, const auto& nothing) {
    const auto small = ToSmall(nothing);
    if (kernel.small != nullptr) {
      status.Update(driver_->Launch(kernel.small, shape, &small, sizeof(small), *stream));
    }
    if (kernel.large != nullptr) {
      status.Update(driver_->Launch(kernel.large, shape, &nothing, sizeof(nothing), *stream));
    }
  };
  for (const auto& forms : reduce_) {
    for (const Kernel& kernel : forms) run(kernel, ReduceParams{});
  }
  SpreadParams no_spread{};
  no_spread.part = kSmallPart;
  run(spread_, no_spread);
  MoveParams no_move{};  // of an empty run
  no_move.runs = no_move.parts = 1;
  no_move.part = kSmallPart;
  no_move.team = kWarp;
  run(move_, no_move);
  run(move_host_, no_move);
  run(signal_, Signals{});
  status.Update(driver_->Synchronize(*stream));
  driver_->DestroyStream(*stream);
  return status;
}

template <class Params>
bool Kernels::IsSmall(const Params& params) const {
  return !cut_.large_forms && FitsSmall(params);
}

template <class Params>
absl::Status Kernels::Launch(const Kernel& kernel, const LaunchShape& shape, const Params& params,
                             Stream stream) {
  if (!IsSmall(params)) {
    return driver_->Launch(kernel.large, shape, &params, sizeof(params), stream);
  }
  const auto small = ToSmall(params);
  return driver_->Launch(kernel.small, shape, &small, sizeof(small), stream);
}

// Every block of a kernel with signals waits for its stores and then for its ticket, of which the
// GPU gives out one in 2 to 3 ns: an H200's large grids lost 5 to 27 % of their rate by that. A
// launch more is 2 to 3 us, and a kernel's end makes its output visible for nothing.
template <class Params>
absl::Status Kernels::LaunchAndSignal(const Kernel& kernel, const LaunchShape& shape,
                                      const Params& params, Stream stream) {
  const uint64_t blocks = uint64_t{shape.blocks_x} * shape.blocks_y;
  if (blocks <= uint64_t{multiprocessors_} * cut_.signal_blocks) {
    return Launch(kernel, shape, params, stream);
  }
  Params silent = params;
  silent.signals.count = 0;
  silent.signals.completion = nullptr;
  SHUNT_RETURN_IF_ERROR(Launch(kernel, shape, silent, stream));
  return Signal(params.signals, stream);
}

absl::Status Kernels::Reduce(const ReduceParams& params, Stream stream) {
  if (!IsValid(static_cast<DataType>(params.dtype))) {
    return Wrong("data type", params.dtype, "0 to 11");
  }
  if (!IsValid(static_cast<Redop>(params.redop))) return Wrong("reduction", params.redop, "0 to 5");
  if (params.sources < 1 || params.sources > kRanksMax) {
    return Wrong("sources", params.sources, "1 to 128");
  }
  if (params.destinations < 1 || params.destinations > kRanksMax) {
    return Wrong("destinations", params.destinations, "1 to 128");
  }
  SHUNT_RETURN_IF_ERROR(Check(params.signals));
  if (static_cast<Redop>(params.redop) == Redop::kAvg && params.divisor == 0) {
    return Wrong("divisor", 0, "at least 1");
  }
  if (params.count == 0) return Signal(params.signals, stream);
  if (IsCopy(params)) return ReduceAsCopy(params, stream);

  const auto redop = static_cast<Redop>(params.redop);
  int form = 0;
  if ((redop == Redop::kSum || redop == Redop::kAvg) && IsSmall(params)) {
    for (int i = 1; i < kForms; ++i) {
      if (kForm[i].sources == params.sources && reduce_[params.dtype][i].small != nullptr) form = i;
    }
  }
  return LaunchAndSignal(reduce_[params.dtype][form], ReduceShape(params, kForm[form].vectors),
                         params, stream);
}

// Large reductions have a block for each few KiB of a source: it ends, and another one starts where
// a place is free. Grids that stay on the GPU reached 0.85 to 0.93 of what these do, which is the
// rate of the GPU's own copies.
LaunchShape Kernels::ReduceShape(const ReduceParams& params, uint32_t vectors) const {
  const uint64_t bytes = params.count * SizeOf(static_cast<DataType>(params.dtype));
  const bool agree = Agree(params, bytes);
  LaunchShape shape;
  shape.blocks_y = params.scatter != 0 ? params.destinations : 1;
  shape.threads = agree ? cut_.reduce_threads : kStayThreads;
  // A few elements beside the vectors are no item: the last block's threads have them as well.
  const uint64_t items =
      agree ? std::max<uint64_t>(1, CeilDiv(bytes / kVector, vectors)) : params.count;
  if (items <= uint64_t{kAloneThreads} * cut_.alone_steps && shape.blocks_y == 1) {
    shape.threads = static_cast<uint32_t>(std::min<uint64_t>(kAloneThreads, RoundUp(items, kWarp)));
    return shape;
  }
  if (CeilDiv(items, shape.threads) * shape.blocks_y < multiprocessors_) {
    shape.threads = std::min(shape.threads, kSmallThreads);
  }
  uint64_t blocks = CeilDiv(items, shape.threads);
  const uint64_t fill = CeilDiv(uint64_t{multiprocessors_} * kStayBlocks, shape.blocks_y);
  if (!agree) {
    blocks = std::min(blocks, fill);  // single elements
  } else if (blocks > fill) {
    blocks = std::max(fill, CeilDiv(blocks, cut_.reduce_steps));
  }
  shape.blocks_x = static_cast<uint32_t>(std::min(blocks, kBlocksMax));
  return shape;
}

absl::Status Kernels::ReduceAsCopy(const ReduceParams& params, Stream stream) {
  SpreadParams spread{};
  spread.bytes = params.count * SizeOf(static_cast<DataType>(params.dtype));
  spread.destinations = params.destinations;
  for (uint32_t d = 0; d < params.destinations; ++d) spread.destination[d] = params.destination[d];
  if (params.scatter != 0) {
    spread.pattern = SpreadPattern::kEach;
    spread.segments = params.destinations;
    for (uint32_t d = 0; d < params.destinations; ++d) {
      spread.source[d] = params.source[0] + d * spread.bytes;
    }
  } else {
    spread.pattern = SpreadPattern::kFan;
    spread.segments = 1;
    spread.source[0] = params.source[0];
  }
  spread.signals = params.signals;
  return Spread(spread, stream);
}

absl::Status Kernels::Spread(const SpreadParams& params, Stream stream) {
  if (params.segments > kRanksMax) return Wrong("segments", params.segments, "at most 128");
  if (params.destinations > kRanksMax) {
    return Wrong("destinations", params.destinations, "at most 128");
  }
  SHUNT_RETURN_IF_ERROR(Check(params.signals));
  if (params.bytes == 0 || params.segments == 0) return Signal(params.signals, stream);
  SpreadParams sized = params;
  LaunchShape shape;
  shape.threads = cut_.copy_threads;
  shape.blocks_y = params.segments;
  if (params.pattern == SpreadPattern::kPairs) shape.blocks_y *= params.segments;
  sized.part = cut_.copy_part;
  if (CeilDiv(params.bytes, sized.part) * shape.blocks_y < multiprocessors_) {
    sized.part = std::min(sized.part, kSmallPart);
  }
  const uint64_t blocks = CeilDiv(params.bytes, sized.part);
  if (blocks > kBlocksMax) return Wrong("bytes of a segment", params.bytes, "less than 8 TiB");
  shape.blocks_x = static_cast<uint32_t>(blocks);
  return LaunchAndSignal(spread_, shape, sized, stream);
}

absl::Status Kernels::Move(const MoveParams& params, Stream stream) {
  SHUNT_RETURN_IF_ERROR(Check(params.signals));
  if (params.runs == 0) return Signal(params.signals, stream);
  if (params.runs > kBlocksMax) return Wrong("runs", params.runs, "fewer than 2^31");
  if (params.run == nullptr && params.runs > kFewRuns) {
    return Wrong("runs without a table", params.runs, "at most 64");
  }
  MoveParams sized = params;
  LaunchShape shape;
  const uint64_t mean = std::max<uint64_t>(1, CeilDiv(params.bytes, params.runs));
  const uint64_t parts_max = kBlocksMax / params.runs;
  if (params.host != 0) {
    // A run is cut only where there are too few of them for all warps: each part reads the run's
    // words again.
    shape.threads = kHostThreads;
    constexpr uint32_t kWarps = kHostThreads / kWarp;
    const uint64_t blocks = uint64_t{multiprocessors_} * kHostBlocks;
    const uint64_t parts =
        std::clamp<uint64_t>(blocks * kWarps / params.runs, 1, CeilDiv(mean, kHostPart));
    sized.parts = static_cast<uint32_t>(std::min(parts, parts_max));
    sized.part = static_cast<uint32_t>(
        std::min<uint64_t>(RoundUp(CeilDiv(mean, sized.parts), kHostPart), 1 << 30));
    const uint64_t items = uint64_t{params.runs} * sized.parts;
    shape.blocks_x = static_cast<uint32_t>(std::min(CeilDiv(items, kWarps), blocks));
    return LaunchAndSignal(move_host_, shape, sized, stream);
  }
  shape.threads = cut_.copy_threads;
  sized.part = cut_.copy_part;
  if (CeilDiv(mean, sized.part) * params.runs < multiprocessors_) {
    sized.part = std::min(sized.part, kSmallPart);
  }
  sized.parts = static_cast<uint32_t>(std::min(CeilDiv(mean, sized.part), parts_max));
  sized.team = mean <= cut_.warp_part && sized.parts == 1 ? kWarp : shape.threads;
  const uint64_t items = uint64_t{params.runs} * sized.parts;
  shape.blocks_x = static_cast<uint32_t>(CeilDiv(items, shape.threads / sized.team));
  return LaunchAndSignal(move_, shape, sized, stream);
}

absl::Status Kernels::Signal(const Signals& signals, Stream stream) {
  SHUNT_RETURN_IF_ERROR(Check(signals));
  if (signals.count == 0 && signals.completion == nullptr) return absl::OkStatus();
  LaunchShape shape;
  shape.threads = kWarp;
  return Launch(signal_, shape, signals, stream);
}

}  // namespace shunt::gpu
