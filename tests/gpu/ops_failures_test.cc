// What goes wrong with operations on GPU memory, and how each rank hears of it. No stream is left
// waiting.
#include <signal.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/gpu/ops_world.h"

namespace shunt::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void* OnDevice(const Rank& rank, size_t bytes) {
  void* data = nullptr;
  ExpectOk(shunt_alloc_device(rank.session, 0, bytes, &data));
  std::memset(data, 0, bytes);
  return data;
}

int AllReduce(const Rank& rank, void* data, uint64_t count, const shunt_call* call) {
  return shunt_all_reduce(rank.comm, data, data, count, SHUNT_FLOAT32, SHUNT_SUM, call, nullptr);
}

// Ends only if the daemon, or whoever is left, released it.
void ExpectStreamGoesOn(const OnGpu& gpu) { ExpectStatus(gpu.driver().Synchronize(gpu.stream())); }

TEST_CASE("calls on streams that differ are told with both in words, and the streams go on") {
  const GpuDaemon daemon;
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 2, [&](const Rank& rank, const OnGpu& gpu) {
    void* const data = OnDevice(rank, 4096);
    const shunt_call call = OnStream(gpu.stream());
    const int code = AllReduce(rank, data, rank.rank == 0 ? 100 : 200, &call);
    const int end = code == SHUNT_OK ? shunt_sync(rank.comm, 0) : code;
    ExpectCode(end, SHUNT_FAILED_PRECONDITION, {"do not match", "count 100", "count 200"});
    ExpectStreamGoesOn(gpu);
  }));
}

TEST_CASE("a rank that never calls is named at the deadline, and the other's stream goes on") {
  const GpuDaemon daemon;
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 2, [&](const Rank& rank, const OnGpu& gpu) {
    if (rank.rank == 0) {
      void* const data = OnDevice(rank, 4096);
      shunt_call call = OnStream(gpu.stream());
      call.timeout_ns = std::chrono::nanoseconds(milliseconds(200)).count();
      ExpectOk(AllReduce(rank, data, 100, &call));
      ExpectCode(shunt_sync(rank.comm, 0), SHUNT_DEADLINE_EXCEEDED, {"rank 1", "never called"});
      ExpectStreamGoesOn(gpu);
    }
    meeting.Wait();
  }));
}

TEST_CASE("a stream that does not come to its call is named at the deadline") {
  const GpuDaemon daemon;
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 2, [&](const Rank& rank, const OnGpu& gpu) {
    void* const data = OnDevice(rank, 4096);
    shunt_call call = OnStream(gpu.stream());
    call.timeout_ns = std::chrono::nanoseconds(milliseconds(300)).count();
    {
      Barrier barrier(gpu.driver());
      if (rank.rank == 1) barrier.Hold(gpu.stream());
      ExpectOk(AllReduce(rank, data, 100, &call));
      ExpectCode(shunt_sync(rank.comm, 0), SHUNT_DEADLINE_EXCEEDED,
                 {"the stream of rank 1", "has not come"});
      meeting.Wait();
    }
    ExpectStreamGoesOn(gpu);
  }));
}

// A program of its own, for CUDA does not survive a fork.
TEST_CASE("rank 1 of two, which kills itself", "[.killed]") {
  const OnGpu gpu;
  const TestSession session(std::getenv("SHUNT_OPS_SOCKET"), "killed");
  const TestComm comm = JoinDevice(session, std::getenv("SHUNT_OPS_NAME"), 1, 2);
  const Rank rank{session, comm, 1, 2};
  void* const data = OnDevice(rank, 4096);
  Barrier barrier(gpu.driver());
  barrier.Hold(gpu.stream());
  const shunt_call call = OnStream(gpu.stream());
  ExpectOk(AllReduce(rank, data, 100, &call));
  // The other has called, too, when this ends: its own barrier comes behind.
  ExpectOk(shunt_barrier(rank.comm, nullptr, nullptr));
  ::raise(SIGKILL);
}

TEST_CASE("a rank killed with a call on its stream ends the other's, whose stream goes on") {
  const GpuDaemon daemon;
  const TempDir dir;
  const std::string name = FreshName();
  ::setenv("SHUNT_OPS_SOCKET", daemon.socket().c_str(), 1);
  ::setenv("SHUNT_OPS_NAME", name.c_str(), 1);
  Process child = Process::Exec({std::filesystem::read_symlink("/proc/self/exe"), "[.killed]"},
                                dir.path() + "/log");
  REQUIRE_NOTHROW([&] {
    const OnGpu gpu;
    const TestSession session(daemon.socket(), "left");
    const TestComm comm = JoinDevice(session, name, 0, 2);
    const Rank rank{session, comm, 0, 2};
    void* const data = OnDevice(rank, 4096);
    const shunt_call call = OnStream(gpu.stream());
    ExpectOk(AllReduce(rank, data, 100, &call));
    (void)shunt_barrier(rank.comm, nullptr, nullptr);
    ExpectCode(shunt_sync(rank.comm, 0), SHUNT_UNAVAILABLE, {"rank 1", "died"});
    ExpectStreamGoesOn(gpu);
  }());
  child.Wait();
}

// The worker's process, from the daemon's children.
pid_t WorkerOf(const TestDaemon& daemon) {
  const std::string task = "/proc/" + std::to_string(daemon.pid()) + "/task";
  std::string all;
  for (const auto& thread : std::filesystem::directory_iterator(task)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t pid; children >> pid;) {
      std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
      std::string words;
      std::getline(comm, words);
      if (words.starts_with("gpu_ops_worker") || words.starts_with("shunt-gpu")) return pid;
      all += words + " ";
    }
  }
  throw Wrong("shuntd has no worker, but: " + all);
}

TEST_CASE("a worker that is killed ends what it had, naming the GPU; the next one serves") {
  const GpuDaemon daemon;
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 2, [&](const Rank& rank, const OnGpu& gpu) {
    void* const data = OnDevice(rank, 4096);
    shunt_call call = OnStream(gpu.stream());
    {
      Barrier barrier(gpu.driver());
      ExpectOk(AllReduce(rank, data, 100, &call));
      ExpectOk(shunt_sync(rank.comm, 0));
      if (rank.rank == 1) barrier.Hold(gpu.stream());
      ExpectOk(AllReduce(rank, data, 100, &call));
      meeting.Wait();
      if (rank.rank == 0) ::kill(WorkerOf(daemon), SIGKILL);
      ExpectCode(shunt_sync(rank.comm, 0), SHUNT_UNAVAILABLE, {"GPU 0"});
    }
    ExpectStreamGoesOn(gpu);
  }));
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 2, [&](const Rank& rank, const OnGpu&) {
    auto* const data = static_cast<float*>(OnDevice(rank, 4096));
    data[0] = 1.5F;
    ExpectOk(AllReduce(rank, data, 1, nullptr));
    Expect(data[0] == 3.0F, "the sum is " + std::to_string(data[0]));
  }));
}

TEST_CASE("memory of a call under way is not given back") {
  const GpuDaemon daemon;
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 2, [&](const Rank& rank, const OnGpu& gpu) {
    void* const data = OnDevice(rank, 4096);
    const shunt_call call = OnStream(gpu.stream());
    {
      Barrier barrier(gpu.driver());
      if (rank.rank == 1) barrier.Hold(gpu.stream());
      ExpectOk(AllReduce(rank, data, 100, &call));
      meeting.Wait();
      ExpectCode(shunt_free_device(rank.session, data), SHUNT_FAILED_PRECONDITION, {"all_reduce"});
      meeting.Wait();
    }
    ExpectOk(shunt_sync(rank.comm, 0));
    ExpectOk(shunt_free_device(rank.session, data));
  }));
}

TEST_CASE("ranks that join with and without GPU memory are told") {
  const GpuDaemon daemon;
  const std::string name = FreshName();
  REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
    const TestSession session(daemon.socket());
    shunt_join_options options{};
    options.struct_size = sizeof(options);
    options.name = name.c_str();
    options.rank = r;
    options.world_size = 2;
    options.timeout_ns = std::chrono::nanoseconds(seconds(1)).count();
    options.flags = r == 0 ? SHUNT_JOIN_DEVICE : 0;
    shunt_comm* comm = nullptr;
    const int code = shunt_join(session, &options, &comm);
    Expect(code == SHUNT_DEADLINE_EXCEEDED || code == SHUNT_FAILED_PRECONDITION,
           shunt_last_error());
    if (code == SHUNT_FAILED_PRECONDITION) ExpectCode(code, code, {"GPU memory", "host memory"});
  }));
}

}  // namespace
}  // namespace shunt::testing
