// libshunt's streams when something ends: the daemon, a session, a registration, a fork. With a
// real daemon and worker, over a driver without a GPU; two of them, so that one can be the wrong
// one.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>

#include "tests/gpu/cuda_program.h"
#include "tests/gpu/ops_world.h"

namespace shunt::testing {
namespace {

using gpu::DevicePtr;

uint32_t* Words(DevicePtr address) { return reinterpret_cast<uint32_t*>(address); }

int AllReduce(shunt_comm* comm, DevicePtr address, const shunt_call* call,
              shunt_op** op = nullptr) {
  return shunt_all_reduce(comm, Words(address), Words(address), 1024, SHUNT_UINT32, SHUNT_SUM, call,
                          op);
}

TEST_CASE("streams that wait go on when the daemon is killed, and calls say that it is gone") {
  GpuDaemon daemon;
  REQUIRE_NOTHROW([&] {
    const OnGpu gpu;
    const TestSession session(daemon.socket());
    const TestSession other(daemon.socket());
    const DevicePtr x = Got(gpu.driver().Allocate(4096));
    const shunt_call call = OnStream(gpu.stream());
    gpu::testing::GraphRun run = nullptr;
    {
      const std::string name = FreshName();
      shunt_comm* comms[2] = {};
      RunThreads(2, [&](int r) {
        shunt_join_options options{};
        options.struct_size = sizeof(options);
        options.name = name.c_str();
        options.rank = r;
        options.world_size = 2;
        options.flags = SHUNT_JOIN_DEVICE;
        ExpectOk(shunt_join(r == 0 ? session.get() : other.get(), &options, &comms[r]));
      });
      const TestComm comm(comms[0]), second(comms[1]);
      shunt_op* op = nullptr;
      // Rank 1 never calls.
      ExpectOk(AllReduce(comm, x, &call));
      ExpectOk(AllReduce(comm, x, &call, &op));
      gpu::testing::BeginCapture(gpu.stream());
      ExpectOk(AllReduce(comm, x, &call));
      const gpu::Graph graph = gpu::testing::EndCapture(gpu.stream());
      run = gpu::testing::Instantiate(graph);
      gpu::testing::DestroyGraph(graph);
      gpu::testing::LaunchGraph(run, gpu.stream());
      Expect(absl::IsUnavailable(gpu.driver().Query(gpu.stream())), "the stream does not wait");

      daemon.Kill();
      ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
      ExpectCode(shunt_op_wait(op, 0), SHUNT_UNAVAILABLE, {"daemon is gone"});
      shunt_op_release(op);
      ExpectCode(shunt_sync(comm, 0), SHUNT_UNAVAILABLE, {"daemon is gone"});
      ExpectCode(AllReduce(comm, x, &call), SHUNT_UNAVAILABLE, {"gone"});
      for (int i = 0; i < 3; ++i) gpu::testing::LaunchGraph(run, gpu.stream());
      ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
    }
    gpu::testing::DestroyGraphRun(run);
    ExpectStatus(gpu.driver().Free(x));
  }());
}

TEST_CASE("an allocation is not given up while an operation uses it") {
  GpuDaemon daemon;
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 1, [](const Rank& rank, const OnGpu& gpu) {
    const DevicePtr x = Got(gpu.driver().Allocate(4096));
    ExpectOk(shunt_register(rank.session, Words(x)));
    const shunt_call call = OnStream(gpu.stream());
    {
      Barrier barrier(gpu.driver());
      barrier.Hold(gpu.stream());
      ExpectOk(AllReduce(rank.comm, x, &call));
      ExpectCode(shunt_deregister(rank.session, Words(x)), SHUNT_FAILED_PRECONDITION,
                 {"in use by all_reduce #1"});
    }
    // What is over on the stream uses nothing any more, whether the daemon has said so or not.
    ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
    uint64_t id = 0;
    ExpectOk(shunt_region_id(rank.session, Words(x), &id));
    ExpectOk(shunt_deregister(rank.session, Words(x)));
    ExpectCode(shunt_region_id(rank.session, Words(x), &id), SHUNT_NOT_FOUND);
    ExpectStatus(gpu.driver().Free(x));
  }));
}

TEST_CASE("memory at an address that was freed and given again is what a call uses") {
  GpuDaemon daemon;
  // Freeing waits for all streams of the process: nobody may be in a call meanwhile.
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 2, [&meeting](const Rank& rank, const OnGpu& gpu) {
    const shunt_call call = OnStream(gpu.stream());
    for (uint32_t round = 1; round <= 8; ++round) {
      const DevicePtr x = Got(gpu.driver().Allocate(4096));
      const std::vector<uint32_t> values(1024, round);
      gpu::testing::CopyToDevice(x, values.data(), 4096);
      ExpectOk(AllReduce(rank.comm, x, &call));
      ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
      std::vector<uint32_t> sums(1024);
      gpu::testing::CopyFromDevice(sums.data(), x, 4096);
      for (const uint32_t sum : sums) {
        Expect(sum == 2 * round, "the sum of another allocation: " + std::to_string(sum) +
                                     ", expected " + std::to_string(2 * round));
      }
      meeting.Wait();
      ExpectStatus(gpu.driver().Free(x));  // not deregistered
      meeting.Wait();
    }
  }));
}

TEST_CASE("a stream of another device than the buffers is refused in words") {
  GpuDaemon daemon;
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 1, [](const Rank& rank, const OnGpu& gpu) {
    const DevicePtr x = Got(gpu.driver().Allocate(4096));
    ExpectStatus(gpu.driver().SetCurrent(Got(gpu.driver().RetainPrimary(1))));
    const gpu::Stream elsewhere = Got(gpu.driver().CreateStream());
    const shunt_call call = OnStream(elsewhere);
    ExpectCode(AllReduce(rank.comm, x, &call), SHUNT_INVALID_ARGUMENT,
               {"a stream of device 1", "on device 0"});
    gpu.driver().DestroyStream(elsewhere);
    ExpectStatus(gpu.driver().SetCurrent(Got(gpu.driver().RetainPrimary(0))));
    const shunt_call right = OnStream(gpu.stream());
    ExpectOk(AllReduce(rank.comm, x, &right));
    ExpectOk(shunt_sync(rank.comm, 0));
    ExpectStatus(gpu.driver().Free(x));
  }));
}

TEST_CASE("a forked child has no part in the parent's calls on streams") {
  GpuDaemon daemon;
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 1, [](const Rank& rank, const OnGpu& gpu) {
    const DevicePtr x = Got(gpu.driver().Allocate(4096));
    const shunt_call call = OnStream(gpu.stream());
    shunt_op* op = nullptr;
    {
      Barrier barrier(gpu.driver());
      barrier.Hold(gpu.stream());
      ExpectOk(AllReduce(rank.comm, x, &call));
      ExpectOk(AllReduce(rank.comm, x, &call, &op));
      const pid_t child = ::fork();
      if (child == 0) {
        const bool refused = AllReduce(rank.comm, x, &call) == SHUNT_FAILED_PRECONDITION &&
                             shunt_register(rank.session, Words(x)) == SHUNT_FAILED_PRECONDITION &&
                             shunt_sync(rank.comm, 0) == SHUNT_FAILED_PRECONDITION;
        shunt_op_release(op);
        shunt_leave(rank.comm);
        shunt_close(rank.session);
        ::_exit(refused ? 0 : 1);
      }
      int status = -1;
      Expect(::waitpid(child, &status, 0) == child, "the child");
      Expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child was not refused");
    }
    ExpectOk(shunt_sync(rank.comm, 0));
    ExpectOk(shunt_op_wait(op, 0));
    shunt_op_release(op);
    ExpectStatus(gpu.driver().Free(x));
  }));
}

}  // namespace
}  // namespace shunt::testing
