#include "bench/perf/gpu_rank.h"

#include <algorithm>
#include <cmath>

#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

constexpr uint64_t kScratchBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<GpuRank>> GpuRank::Open(int rank) {
  std::unique_ptr<GpuRank> gpu(new GpuRank);
  SHUNT_ASSIGN_OR_RETURN(gpu->driver_, gpu::Driver::Load());
  SHUNT_ASSIGN_OR_RETURN(const int devices, gpu->driver_->DeviceCount());
  gpu->device_ = rank % devices;
  SHUNT_ASSIGN_OR_RETURN(gpu->context_, gpu->driver_->RetainPrimary(gpu->device_));
  SHUNT_RETURN_IF_ERROR(gpu->driver_->SetCurrent(gpu->context_));
  SHUNT_ASSIGN_OR_RETURN(gpu->stream_, gpu->driver_->CreateStream());
  SHUNT_ASSIGN_OR_RETURN(gpu->begin_, gpu->driver_->CreateEvent());
  SHUNT_ASSIGN_OR_RETURN(gpu->end_, gpu->driver_->CreateEvent());
  return gpu;
}

GpuRank::~GpuRank() {
  graph_.Drop();
  if (scratch_ != 0) (void)driver_->Free(scratch_);
  if (begin_ != nullptr) driver_->DestroyEvent(begin_);
  if (end_ != nullptr) driver_->DestroyEvent(end_);
  if (stream_ != nullptr) driver_->DestroyStream(stream_);
  if (context_ != nullptr) driver_->ReleasePrimary(device_);
}

absl::Status GpuRank::Copy(void* destination, const void* source, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  SHUNT_RETURN_IF_ERROR(driver_->CopyAsync(reinterpret_cast<gpu::DevicePtr>(destination),
                                           reinterpret_cast<gpu::DevicePtr>(source), bytes,
                                           stream_));
  return driver_->Synchronize(stream_);
}

absl::Status GpuRank::KeepBusy(double us) {
  if (us <= 0) return absl::OkStatus();
  if (scratch_ == 0) {
    SHUNT_ASSIGN_OR_RETURN(scratch_, driver_->Allocate(kScratchBytes));
    for (int i = 0; i < 2; ++i) {  // the first one warms up
      SHUNT_RETURN_IF_ERROR(driver_->Record(begin_, stream_));
      SHUNT_RETURN_IF_ERROR(driver_->FillAsync(scratch_, 1, kScratchBytes, stream_));
      SHUNT_RETURN_IF_ERROR(driver_->Record(end_, stream_));
      SHUNT_RETURN_IF_ERROR(driver_->Synchronize(stream_));
    }
    SHUNT_ASSIGN_OR_RETURN(const float ms, driver_->MillisecondsBetween(begin_, end_));
    fill_us_ = std::max(1.0, static_cast<double>(ms) * 1e3);
  }
  for (double left = us; left > 0; left -= fill_us_) {
    const auto bytes = static_cast<uint64_t>(std::min(1.0, left / fill_us_) * kScratchBytes);
    if (bytes == 0) break;
    SHUNT_RETURN_IF_ERROR(driver_->FillAsync(scratch_, 1, bytes, stream_));
  }
  return absl::OkStatus();
}

void GpuRank::DropGraph() {
  graph_.Drop();
  captured_ = false;
}

absl::StatusOr<int64_t> GpuRank::TimeNs(int64_t iterations, const Timing& timing,
                                        const std::function<absl::Status()>& enqueue) {
  if (timing.graph_calls > 0 && !captured_) {
    SHUNT_RETURN_IF_ERROR(graph_.Capture(stream_, [&]() -> absl::Status {
      for (int64_t i = 0; i < timing.graph_calls; ++i) SHUNT_RETURN_IF_ERROR(enqueue());
      return absl::OkStatus();
    }));
    captured_ = true;
  }
  SHUNT_RETURN_IF_ERROR(KeepBusy(timing.after_us));
  SHUNT_RETURN_IF_ERROR(driver_->Record(begin_, stream_));
  int64_t enqueued = 0;
  while (enqueued < iterations) {
    if (timing.graph_calls > 0) {
      SHUNT_RETURN_IF_ERROR(graph_.Launch(stream_));
      enqueued += timing.graph_calls;
    } else {
      SHUNT_RETURN_IF_ERROR(enqueue());
      ++enqueued;
    }
  }
  SHUNT_RETURN_IF_ERROR(driver_->Record(end_, stream_));
  SHUNT_RETURN_IF_ERROR(driver_->Synchronize(stream_));
  SHUNT_ASSIGN_OR_RETURN(const float ms, driver_->MillisecondsBetween(begin_, end_));
  const double each_ns = static_cast<double>(ms) * 1e6 / static_cast<double>(enqueued);
  return std::max<int64_t>(1, std::llround(each_ns * static_cast<double>(iterations)));
}

}  // namespace shunt::bench
