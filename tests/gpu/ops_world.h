// Ranks with GPU memory on a real shuntd and its real worker, over a driver without a GPU
// (fake_cuda), whose device memory this process can look at.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/core/fd.h"
#include "runtime/gpu/driver.h"
#include "tests/client/harness.h"

namespace shunt::testing {

// Its worker is $SHUNT_OPS_WORKER, the CPU; or the one beside shuntd.
class GpuDaemon : public TestDaemon {
 public:
  GpuDaemon() : TestDaemon(Flags()) {}

 private:
  static std::vector<std::string> Flags() {
    const char* const worker = std::getenv("SHUNT_OPS_WORKER");
    std::vector<std::string> flags = {"--gpu-enabled", "on"};
    if (worker != nullptr) flags.insert(flags.end(), {"--gpu-worker", worker});
    return flags;
  }
};

template <typename T>
T Got(absl::StatusOr<T> result) {
  Expect(result.ok(), result.status().ToString());
  return *std::move(result);
}
inline void ExpectStatus(const absl::Status& status) { Expect(status.ok(), status.ToString()); }

// GPU 0's context, current in this thread, and a stream.
class OnGpu {
 public:
  OnGpu() : driver_(*Got(gpu::Driver::Load())) {
    ExpectStatus(driver_.SetCurrent(Got(driver_.RetainPrimary(0))));
    stream_ = Got(driver_.CreateStream());
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu() {
    driver_.DestroyStream(stream_);
    (void)driver_.SetCurrent(nullptr);
    driver_.ReleasePrimary(0);
  }
  gpu::Driver& driver() const { return driver_; }
  gpu::Stream stream() const { return stream_; }

 private:
  gpu::Driver& driver_;
  gpu::Stream stream_ = nullptr;
};

// A word that streams can wait for: what is enqueued behind Hold begins after Open, or this
// object's end. Its memory is kept, for a stream may come by late.
class Barrier {
 public:
  explicit Barrier(gpu::Driver& driver) : driver_(driver), mapping_(Keep()) {
    address_ = Got(driver.RegisterHost(mapping_->data(), 4096));
  }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  ~Barrier() { Open(); }
  void Hold(gpu::Stream stream) {
    const gpu::MemoryOp wait = {gpu::MemoryOp::Kind::kWaitAtLeast, address_, 1};
    ExpectStatus(driver_.Enqueue(stream, {&wait, 1}));
  }
  void Open() {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(mapping_->data())).store(1);
  }

 private:
  static Mapping* Keep() {
    static std::mutex mutex;
    static std::vector<std::unique_ptr<Mapping>>* const kept =
        new std::vector<std::unique_ptr<Mapping>>();
    const UniqueFd file = Got(MakeSealedMemfd("barrier", 4096));
    auto mapping = std::make_unique<Mapping>(Got(Mapping::Map(file.get(), 4096)));
    const std::lock_guard lock(mutex);
    kept->push_back(std::move(mapping));
    return kept->back().get();
  }

  gpu::Driver& driver_;
  Mapping* const mapping_;
  gpu::DevicePtr address_ = 0;
};

inline TestComm JoinDevice(shunt_session* session, const std::string& name, int rank, int world,
                           std::chrono::nanoseconds default_timeout = std::chrono::seconds(30)) {
  shunt_join_options options{};
  options.struct_size = sizeof(options);
  options.name = name.c_str();
  options.rank = rank;
  options.world_size = world;
  options.timeout_ns = std::chrono::nanoseconds(std::chrono::seconds(30)).count();
  options.default_timeout_ns = default_timeout.count();
  options.flags = SHUNT_JOIN_DEVICE;
  shunt_comm* comm = nullptr;
  ExpectOk(shunt_join(session, &options, &comm));
  return TestComm(comm);
}

inline void RunDeviceRanks(const TestDaemon& daemon, int world,
                           const std::function<void(const Rank&, const OnGpu&)>& body,
                           std::chrono::nanoseconds default_timeout = std::chrono::seconds(30)) {
  const std::string name = FreshName();
  RunThreads(world, [&](int r) {
    const OnGpu gpu;
    const TestSession session(daemon.socket(), "rank-" + std::to_string(r));
    const TestComm comm = JoinDevice(session, name, r, world, default_timeout);
    body({session, comm, r, world}, gpu);
    // A call's outcome may be known before its stream has gone on.
    ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
  });
}

inline shunt_call OnStream(gpu::Stream stream) {
  shunt_call call{};
  call.struct_size = sizeof(call);
  call.flags = SHUNT_CALL_STREAM;
  call.stream = stream;
  return call;
}

}  // namespace shunt::testing
