#include "bench/gpu/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/harness/record.h"

namespace shunt::bench {

absl::StatusOr<std::unique_ptr<Device>> Device::Open(int ordinal) {
  const absl::StatusOr<gpu::Driver*> driver = gpu::Driver::Load();
  if (!driver.ok()) return driver.status();
  std::unique_ptr<Device> device(new Device);
  device->driver_ = *driver;
  const auto facts = device->driver_->Describe(ordinal);
  if (!facts.ok()) return facts.status();
  device->facts_ = *facts;
  const auto context = device->driver_->RetainPrimary(ordinal);
  if (!context.ok()) return context.status();
  device->context_ = *context;
  const absl::Status current = device->driver_->SetCurrent(*context);
  if (!current.ok()) return current;
  const auto stream = device->driver_->CreateStream();
  const auto begin = device->driver_->CreateEvent();
  const auto end = device->driver_->CreateEvent();
  for (const absl::Status& status : {stream.status(), begin.status(), end.status()}) {
    if (!status.ok()) return status;
  }
  device->stream_ = *stream;
  device->begin_ = *begin;
  device->end_ = *end;
  return device;
}

Device::~Device() {
  if (context_ == nullptr) return;
  FreeAll();
  if (begin_ != nullptr) driver_->DestroyEvent(begin_);
  if (end_ != nullptr) driver_->DestroyEvent(end_);
  if (stream_ != nullptr) driver_->DestroyStream(stream_);
  driver_->ReleasePrimary(facts_.ordinal);
}

absl::StatusOr<gpu::DevicePtr> Device::Allocate(uint64_t bytes) {
  const auto pointer = driver_->Allocate(bytes);
  if (!pointer.ok()) return pointer.status();
  memory_.push_back(*pointer);
  absl::Status status = driver_->FillAsync(*pointer, 0, bytes, stream_);
  status.Update(driver_->Synchronize(stream_));
  if (!status.ok()) return status;
  return *pointer;
}

absl::StatusOr<Device::Pinned> Device::AllocatePinned(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", bytes, " bytes: ", std::strerror(errno)));
  }
  const auto device = driver_->RegisterHost(memory, bytes);
  if (!device.ok()) {
    munmap(memory, bytes);
    return device.status();
  }
  pinned_.emplace_back(static_cast<std::byte*>(memory), bytes);
  return Pinned{static_cast<std::byte*>(memory), *device};
}

void Device::FreeAll() {
  for (const gpu::DevicePtr pointer : memory_) driver_->Free(pointer).IgnoreError();
  for (const auto& [memory, bytes] : pinned_) {
    driver_->UnregisterHost(memory).IgnoreError();
    munmap(memory, bytes);
  }
  memory_.clear();
  pinned_.clear();
}

absl::StatusOr<double> Device::BlockUs(const std::function<absl::Status()>& enqueue,
                                       int64_t rounds) {
  absl::Status status = driver_->Record(begin_, stream_);
  for (int64_t i = 0; i < rounds; ++i) status.Update(enqueue());
  status.Update(driver_->Record(end_, stream_));
  status.Update(driver_->Synchronize(stream_));
  if (!status.ok()) return status;
  const auto ms = driver_->MillisecondsBetween(begin_, end_);
  if (!ms.ok()) return ms.status();
  return static_cast<double>(*ms) * 1e3 / static_cast<double>(rounds);
}

absl::StatusOr<double> Device::TimeUs(const std::function<absl::Status()>& enqueue, int blocks,
                                      double block_us) {
  if (auto first = BlockUs(enqueue, 1); !first.ok()) return first;
  const auto warm = BlockUs(enqueue, 2);
  if (!warm.ok()) return warm;
  const int64_t rounds =
      std::clamp<int64_t>(static_cast<int64_t>(block_us / std::max(*warm, 0.1)), 1, 5000);
  std::vector<double> times;
  for (int i = 0; i < blocks; ++i) {
    const auto us = BlockUs(enqueue, rounds);
    if (!us.ok()) return us;
    times.push_back(*us);
  }
  return Median(std::move(times));
}

}  // namespace shunt::bench
