// For the kernels' test cases on a GPU: the kernels, and memory that shows every byte they touch.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "runtime/core/check.h"
#include "runtime/gpu/kernels/kernels.h"
#include "tests/gpu/cuda_program.h"
#include "tests/gpu/driver_world.h"

namespace shunt::gpu::testing {

// Of the inputs, another one at every run: printed, and taken from $SHUNT_TEST_SEED if that is set.
inline uint64_t FreshSeed() {
  static const uint64_t seed = [] {
    const char* const named = std::getenv("SHUNT_TEST_SEED");
    const uint64_t chosen =
        named != nullptr ? std::strtoull(named, nullptr, 10) : std::random_device()();
    std::printf("SHUNT_TEST_SEED=%lu\n", chosen);
    return chosen;
  }();
  return seed;
}

struct KernelsWorld : World {
  KernelsWorld()
      : kernels(Value(Kernels::Load(&driver, Value(driver.Describe(0))))),
        ticket(Value(driver.Allocate(256))) {
    Ok(driver.FillAsync(ticket, 0, 256, stream));
    Ok(driver.Synchronize(stream));
  }
  ~KernelsWorld() { (void)driver.Free(ticket); }

  const std::unique_ptr<Kernels> kernels;
  const DevicePtr ticket;
};

// Memory of the GPU beside the image of what it should hold. A case lays out its buffers, then
// fills them in the image, sends it, has kernels run, does to the image what they should have done,
// and looks for a difference: poison lies before, between and behind the buffers.
class Arena {
 public:
  Arena(Driver* driver, Stream stream, uint64_t capacity)
      : driver_(driver),
        stream_(stream),
        capacity_(capacity),
        device_(Value(driver->Allocate(capacity))),
        image_(static_cast<std::byte*>(AllocatePinnedHost(capacity))),
        seen_(static_cast<std::byte*>(AllocatePinnedHost(capacity))) {}
  ~Arena() {
    (void)driver_->Free(device_);
    FreePinnedHost(image_);
    FreePinnedHost(seen_);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void Clear() { bytes_ = 0; }
  // Where a buffer begins, `offset` bytes behind a multiple of 256.
  uint64_t Add(uint64_t bytes, uint64_t offset) {
    const uint64_t at = (bytes_ + kGuard + 255) / 256 * 256 + offset;
    bytes_ = at + bytes + kGuard;
    SHUNT_CHECK(bytes_ <= capacity_);
    return at;
  }
  void Poison() { std::memset(image_, kPoison, bytes_); }
  std::byte* Image(uint64_t at) { return image_ + at; }
  DevicePtr At(uint64_t at) const { return device_ + at; }

  void Send() { Ok(driver_->CopyAsync(device_, Address(image_), bytes_, stream_)); }
  // After all that the stream has: the image has been sent, and may change.
  void Receive() {
    Ok(driver_->CopyAsync(Address(seen_), device_, bytes_, stream_));
    Ok(driver_->Synchronize(stream_));
  }
  // Empty: none.
  std::string Difference() const {
    if (std::memcmp(image_, seen_, bytes_) == 0) return "";
    const auto [expected, seen] = std::mismatch(image_, image_ + bytes_, seen_);
    return "at " + std::to_string(expected - image_) + " of " + std::to_string(bytes_) + ": " +
           std::to_string(std::to_integer<int>(*seen)) + ", expected " +
           std::to_string(std::to_integer<int>(*expected));
  }

 private:
  static constexpr uint64_t kGuard = 64;
  static constexpr int kPoison = 0xa5;
  static uint64_t Address(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

  Driver* const driver_;
  const Stream stream_;
  const uint64_t capacity_;
  const DevicePtr device_;
  std::byte* const image_;
  std::byte* const seen_;
  uint64_t bytes_ = 0;
};

}  // namespace shunt::gpu::testing
