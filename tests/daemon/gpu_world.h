// For tests of GPU memory in shuntd: workers of a driver without a GPU, and memory of this process
// in the part of a client's.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/gpu/device_regions.h"
#include "daemon/gpu/workers.h"
#include "runtime/gpu/driver.h"
#include "tests/gpu/cpu_worker.h"

namespace shunt::daemon {

using namespace std::chrono_literals;
inline constexpr auto kSoon = 20s;
inline constexpr uint64_t kUnit = 2 << 20;  // granularity of memory that can cross

template <typename T>
T Value(absl::StatusOr<T> result) {
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return *std::move(result);
}

// For states of other processes, which send no event.
template <typename F>
bool Eventually(F condition) {
  const auto deadline = std::chrono::steady_clock::now() + kSoon;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// Lines of a file of /proc that have `text`.
inline int Lines(const std::string& path, const std::string& text) {
  std::ifstream in(path);
  int count = 0;
  for (std::string line; std::getline(in, line);) count += line.find(text) != std::string::npos;
  return count;
}

inline int64_t StatusKb(int pid, const std::string& key) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stoll(line.substr(key.size() + 1));
  }
  return 0;
}

inline size_t Fds(int pid) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    ++count;
  }
  return count;
}

// This process as a client of CUDA.
struct Client {
  Client() : driver(*Value(gpu::Driver::Load())) {
    REQUIRE(driver.SetCurrent(Value(driver.RetainPrimary(0))).ok());
    uuid = Value(driver.Describe(0)).uuid;
  }
  gpu::Driver& driver;
  gpu::Uuid uuid{};
};

inline Client& TheClient() {
  static auto* const client = new Client;
  return *client;
}

struct GpuWorld {
  static GpuWorkers::Options Defaults() {
    GpuWorkers::Options options;
    options.choice.enabled = GpuChoice::Enabled::kOn;
    options.choice.worker = std::getenv("SHUNT_CPU_WORKER");
    options.look = 20ms;
    options.backoff = 1ms;
    return options;
  }
  explicit GpuWorld(const GpuWorkers::Options& options = Defaults())
      : client(TheClient()),
        workers(Value(GpuWorkers::Start(options))),
        regions({}, &table, workers.get()) {
    std::promise<void> listed;
    workers->WhenListed([&listed] { listed.set_value(); });
    REQUIRE(listed.get_future().wait_for(kSoon) == std::future_status::ready);
  }
  ~GpuWorld() { workers->Stop(); }

  std::shared_ptr<GpuWorker> worker() { return Value(workers->Find(client.uuid)); }
  std::shared_ptr<Session> NewSession() {
    return std::make_shared<Session>(++sessions, Peer{.pid = 1, .uid = 0, .pidfd = nullptr}, "s",
                                     Token{});
  }
  absl::StatusOr<uint64_t> Register(const std::shared_ptr<Session>& session,
                                    DeviceRegions::Request request) {
    std::promise<absl::StatusOr<uint64_t>> done;
    regions.Register(session, std::move(request),
                     [&done](const absl::StatusOr<uint64_t>& id) { done.set_value(id); });
    auto future = done.get_future();
    REQUIRE(future.wait_for(kSoon) == std::future_status::ready);
    return future.get();
  }
  DeviceRegions::Request Asked(uint64_t bytes) const {
    DeviceRegions::Request request;
    request.device_uuid.assign(reinterpret_cast<const char*>(client.uuid.data()), 16);
    request.bytes = bytes;
    return request;
  }
  DeviceRegions::Request ByFd(uint64_t bytes, int fd) {
    DeviceRegions::Request request = Asked(bytes);
    request.descriptor = ClientFd(Value(Duplicate(fd)), 0, &closer);
    return request;
  }
  DeviceRegions::Request ByIpc(uint64_t bytes, const gpu::IpcHandle& handle) const {
    DeviceRegions::Request request = Asked(bytes);
    request.ipc_handle.assign(reinterpret_cast<const char*>(handle.data()), handle.size());
    return request;
  }
  // A region in the worker, registered by `session`.
  std::shared_ptr<DeviceRegion> Region(const std::shared_ptr<Session>& session,
                                       const gpu::Driver::Exportable& memory) {
    const uint64_t id = Value(Register(session, ByFd(memory.bytes, memory.fd.get())));
    return Value(regions.Find(session->id, id));
  }
  int Mappings() {
    return Lines("/proc/" + std::to_string(worker()->View().pid) + "/maps", "fake_cuda_vmm");
  }

  // A command and how it ends.
  struct Running {
    absl::StatusOr<uint64_t> id;
    std::future<absl::Status> end;
    absl::Status Wait() {
      REQUIRE(end.wait_for(kSoon) == std::future_status::ready);
      return end.get();
    }
  };
  Running Submit(uint64_t incarnation, const std::function<void(gpu::Command&)>& fill) {
    auto end = std::make_shared<std::promise<absl::Status>>();
    auto future = end->get_future();
    absl::StatusOr<uint64_t> id = worker()->Submit(
        incarnation, fill, [end](const absl::Status& status) { end->set_value(status); });
    return {std::move(id), std::move(future)};
  }
  static std::function<void(gpu::Command&)> Copy(uint64_t from, uint64_t to, uint64_t bytes) {
    return [=](gpu::Command& command) {
      command.kind = gpu::CommandKind::kCopy;
      command.places = 1;
      command.place[0].in = from;
      command.place[0].out = to;
      command.bytes = bytes;
    };
  }
  // A collective that the CPU's worker knows by its count.
  static std::function<void(gpu::Command&)> Special(uint64_t count) {
    return [=](gpu::Command& command) {
      command.kind = gpu::CommandKind::kCollective;
      command.count = count;
    };
  }

  Client& client;
  FdCloser closer;
  memory::RegionTable table{memory::Quotas{}};
  std::unique_ptr<GpuWorkers> workers;
  DeviceRegions regions;
  uint64_t sessions = 0;
};

}  // namespace shunt::daemon
