// What libshunt adds to calls on streams: their place among the program's own work, handles,
// groups, graphs, and words for what is wrong. With a real daemon and worker, over a driver without
// a GPU.
#include <poll.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/cuda_program.h"
#include "tests/gpu/ops_world.h"

namespace shunt::testing {
namespace {

using gpu::DevicePtr;

TestDaemon& Daemon() {
  static GpuDaemon daemon;
  return daemon;
}

constexpr size_t kCount = 4096;
constexpr size_t kBytes = kCount * sizeof(uint32_t);

// Memory of cudaMalloc, which libshunt hears of at the first call that names it.
class Words {
 public:
  explicit Words(gpu::Driver& driver, size_t bytes = kBytes)
      : driver_(driver), address_(Got(driver.Allocate(bytes))), bytes_(bytes) {}
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  ~Words() { (void)driver_.Free(address_); }

  uint32_t* data() const { return reinterpret_cast<uint32_t*>(address_); }
  DevicePtr address() const { return address_; }
  void Set(uint32_t value) const {
    const std::vector<uint32_t> values(bytes_ / sizeof(uint32_t), value);
    gpu::testing::CopyToDevice(address_, values.data(), bytes_);
  }
  void ExpectAll(uint32_t value, const std::string& what) const {
    std::vector<uint32_t> values(bytes_ / sizeof(uint32_t));
    gpu::testing::CopyFromDevice(values.data(), address_, bytes_);
    for (const uint32_t v : values) {
      Expect(v == value, what + ": " + std::to_string(v) + ", expected " + std::to_string(value));
    }
  }

 private:
  gpu::Driver& driver_;
  const DevicePtr address_;
  const size_t bytes_;
};

void Ranks(int world, const std::function<void(const Rank&, const OnGpu&)>& body,
           std::chrono::nanoseconds timeout = std::chrono::seconds(30)) {
  REQUIRE_NOTHROW(RunDeviceRanks(Daemon(), world, body, timeout));
}

int AllReduce(const Rank& rank, const uint32_t* in, uint32_t* out, const shunt_call* call,
              shunt_op** op = nullptr) {
  return shunt_all_reduce(rank.comm, in, out, kCount, SHUNT_UINT32, SHUNT_SUM, call, op);
}

TEST_CASE("a call comes after what its stream had to do, and before what it does next") {
  Ranks(3, [](const Rank& rank, const OnGpu& gpu) {
    const Words x(gpu.driver()), y(gpu.driver());
    x.Set(0);
    y.Set(0);
    const shunt_call call = OnStream(gpu.stream());
    {
      Barrier slow(gpu.driver());
      slow.Hold(gpu.stream());
      ExpectStatus(gpu.driver().FillAsync(x.address(), static_cast<uint8_t>(rank.rank + 1), kBytes,
                                          gpu.stream()));
      ExpectOk(AllReduce(rank, x.data(), x.data(), &call));
      ExpectStatus(gpu.driver().CopyAsync(y.address(), x.address(), kBytes, gpu.stream()));
      ExpectStatus(gpu.driver().FillAsync(x.address(), 9, kBytes, gpu.stream()));
      y.ExpectAll(0, "the copy ran before the stream came to it");
    }
    ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
    y.ExpectAll(0x06060606, "what the stream read after the call");
    x.ExpectAll(0x09090909, "what the stream wrote after it");
    ExpectOk(shunt_sync(rank.comm, 0));
  });
}

TEST_CASE("calls on two streams of a rank keep the communicator's order") {
  Ranks(2, [](const Rank& rank, const OnGpu& gpu) {
    const gpu::Stream other = Got(gpu.driver().CreateStream());
    const Words x(gpu.driver()), y(gpu.driver());
    x.Set(1);
    y.Set(1);
    const shunt_call first = OnStream(gpu.stream()), second = OnStream(other);
    for (int i = 0; i < 20; ++i) {
      ExpectOk(AllReduce(rank, x.data(), x.data(), i % 3 == 0 ? &second : &first));
      ExpectOk(AllReduce(rank, y.data(), y.data(), i % 2 == 0 ? &first : &second));
    }
    ExpectOk(shunt_sync(rank.comm, 0));
    ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
    ExpectStatus(gpu.driver().Synchronize(other));
    x.ExpectAll(1 << 20, "x");
    y.ExpectAll(1 << 20, "y");
    gpu.driver().DestroyStream(other);
  });
}

TEST_CASE("a handle on a stream ends with the operation, and its descriptor tells") {
  Ranks(2, [](const Rank& rank, const OnGpu& gpu) {
    const Words x(gpu.driver());
    x.Set(5);
    const shunt_call call = OnStream(gpu.stream());
    shunt_op* op = nullptr;
    int fd = -1, done = 1;
    {
      Barrier slow(gpu.driver());
      slow.Hold(gpu.stream());
      ExpectOk(AllReduce(rank, x.data(), x.data(), &call, &op));
      ExpectOk(shunt_op_fd(op, &fd));
      ExpectOk(shunt_op_poll(op, &done));
      Expect(done == 0, "it has ended before its stream came to it");
      ExpectCode(shunt_op_wait(op, 1'000'000), SHUNT_DEADLINE_EXCEEDED, {"still running"});
    }
    pollfd readable{fd, POLLIN, 0};
    Expect(::poll(&readable, 1, 30'000) == 1, "the descriptor does not become readable");
    ExpectOk(shunt_op_wait(op, 0));
    x.ExpectAll(10, "x");
    shunt_op_release(op);
  });
}

TEST_CASE("a group triggers all its calls before it waits for any") {
  Ranks(3, [](const Rank& rank, const OnGpu& gpu) {
    const Words out(gpu.driver()), in(gpu.driver());
    const shunt_call call = OnStream(gpu.stream());
    const int right = (rank.rank + 1) % 3, left = (rank.rank + 2) % 3;
    for (int i = 0; i < 6; ++i) {
      out.Set(static_cast<uint32_t>(10 * i + rank.rank));
      shunt_op* op = nullptr;
      ExpectOk(shunt_group_begin(rank.comm));
      ExpectOk(shunt_send(rank.comm, out.data(), kCount, SHUNT_UINT32, right, &call, nullptr));
      ExpectOk(shunt_recv(rank.comm, in.data(), kCount, SHUNT_UINT32, left, &call, nullptr));
      ExpectOk(shunt_group_end(rank.comm, i % 2 == 0 ? nullptr : &op));
      if (op != nullptr) ExpectOk(shunt_op_wait(op, 0));
      shunt_op_release(op);
      ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
      in.ExpectAll(static_cast<uint32_t>(10 * i + left), "what came from the left");
    }
    ExpectOk(shunt_group_begin(rank.comm));
    ExpectOk(shunt_send(rank.comm, out.data(), kCount, SHUNT_UINT32, right, &call, nullptr));
    ExpectOk(shunt_recv(rank.comm, in.data(), kCount, SHUNT_UINT32, left, nullptr, nullptr));
    ExpectCode(shunt_group_end(rank.comm, nullptr), SHUNT_INVALID_ARGUMENT, {"1 of its 2 calls"});
  });
}

TEST_CASE("two graphs on two streams replay their calls") {
  constexpr int kReplays = 100;
  // A capture forbids copies on any thread of the process.
  Meeting meeting(2);
  Ranks(2, [&meeting](const Rank& rank, const OnGpu& gpu) {
    const gpu::Stream streams[] = {gpu.stream(), Got(gpu.driver().CreateStream())};
    const Words a(gpu.driver()), b(gpu.driver()), sum(gpu.driver());
    const Words* words[] = {&a, &b};
    gpu::testing::GraphRun runs[2];
    for (int g = 0; g < 2; ++g) words[g]->Set(static_cast<uint32_t>(g + rank.rank));
    meeting.Wait();
    for (int g = 0; g < 2; ++g) {
      const shunt_call call = OnStream(streams[g]);
      gpu::testing::BeginCapture(streams[g]);
      // Everybody has the greatest value, then the sum of both.
      ExpectOk(shunt_all_reduce(rank.comm, words[g]->data(), words[g]->data(), kCount, SHUNT_UINT32,
                                SHUNT_MAX, &call, nullptr));
      ExpectOk(AllReduce(rank, words[g]->data(), words[g]->data(), &call));
      const gpu::Graph graph = gpu::testing::EndCapture(streams[g]);
      Expect(graph != nullptr, "the capture failed");
      runs[g] = gpu::testing::Instantiate(graph);
      gpu::testing::DestroyGraph(graph);
    }
    meeting.Wait();
    a.ExpectAll(static_cast<uint32_t>(rank.rank), "a captured call took effect");
    meeting.Wait();
    for (int i = 0; i < kReplays; ++i) {
      for (int g = 0; g < 2; ++g) gpu::testing::LaunchGraph(runs[g], streams[g]);
    }
    for (const gpu::Stream stream : streams) ExpectStatus(gpu.driver().Synchronize(stream));
    // It doubles each time, 32 of which are 0; what follows stays there.
    a.ExpectAll(0, "after many replays");
    a.Set(static_cast<uint32_t>(rank.rank + 1));
    for (int i = 0; i < 3; ++i) gpu::testing::LaunchGraph(runs[0], streams[0]);
    ExpectStatus(gpu.driver().Synchronize(streams[0]));
    a.ExpectAll(2 << 3, "after three more");
    // Calls outside graphs go on beside them.
    const shunt_call call = OnStream(streams[1]);
    sum.Set(1);
    ExpectOk(AllReduce(rank, sum.data(), sum.data(), &call));
    ExpectOk(shunt_sync(rank.comm, 0));
    sum.ExpectAll(2, "a call outside graphs");
    ExpectStatus(gpu.driver().Synchronize(streams[1]));
    for (const auto run : runs) gpu::testing::DestroyGraphRun(run);
    gpu.driver().DestroyStream(streams[1]);
  });
}

TEST_CASE("replays pass after the communicator has failed, and after it has been left") {
  const std::string name = FreshName();
  REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
    const OnGpu gpu;
    const TestSession session(Daemon().socket());
    const Words x(gpu.driver());
    x.Set(1);
    gpu::testing::GraphRun run = nullptr;
    {
      const TestComm comm = JoinDevice(session, name, r, 2);
      const shunt_call call = OnStream(gpu.stream());
      gpu::testing::BeginCapture(gpu.stream());
      ExpectOk(shunt_all_reduce(comm, x.data(), x.data(), kCount, SHUNT_UINT32, SHUNT_SUM, &call,
                                nullptr));
      const gpu::Graph graph = gpu::testing::EndCapture(gpu.stream());
      run = gpu::testing::Instantiate(graph);
      gpu::testing::DestroyGraph(graph);
      gpu::testing::LaunchGraph(run, gpu.stream());
      ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
      x.ExpectAll(2, "the replay");
      if (r == 0) ExpectOk(shunt_abort(comm, "for a test"));
      gpu::testing::LaunchGraph(run, gpu.stream());
      ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
      ExpectCode(shunt_all_reduce(comm, x.data(), x.data(), kCount, SHUNT_UINT32, SHUNT_SUM, &call,
                                  nullptr),
                 SHUNT_ABORTED, {"for a test"});
    }
    gpu::testing::LaunchGraph(run, gpu.stream());
    ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
    gpu::testing::DestroyGraphRun(run);
  }));
}

TEST_CASE("what cannot be captured is refused in words, and the capture goes on") {
  Ranks(1, [](const Rank& rank, const OnGpu& gpu) {
    const Words x(gpu.driver());
    const shunt_call call = OnStream(gpu.stream());
    gpu::testing::BeginCapture(gpu.stream());
    ExpectCode(shunt_send(rank.comm, x.data(), kCount, SHUNT_UINT32, 0, &call, nullptr),
               SHUNT_UNIMPLEMENTED, {"send", "captured"});
    shunt_op* op = nullptr;
    ExpectCode(AllReduce(rank, x.data(), x.data(), &call, &op), SHUNT_INVALID_ARGUMENT,
               {"being captured", "no handle"});
    const gpu::Graph graph = gpu::testing::EndCapture(gpu.stream());
    Expect(graph != nullptr, "the capture failed");
    gpu::testing::DestroyGraph(graph);
  });
}

TEST_CASE("memory and streams that a call cannot use are refused in words") {
  Ranks(1, [](const Rank& rank, const OnGpu& gpu) {
    const Words x(gpu.driver());
    std::vector<uint32_t> ordinary(kCount);
    shunt_call call = OnStream(gpu.stream());
    ExpectCode(AllReduce(rank, x.data(), ordinary.data(), &call), SHUNT_INVALID_ARGUMENT,
               {"'out'", "host memory outside regions"});
    ExpectCode(AllReduce(rank, x.data(), x.data() + kCount / 2, &call), SHUNT_INVALID_ARGUMENT,
               {"overlap"});
    const auto beyond = shunt_all_reduce(rank.comm, x.data(), x.data(), 2 * kCount, SHUNT_UINT32,
                                         SHUNT_SUM, &call, nullptr);
    ExpectCode(beyond, SHUNT_INVALID_ARGUMENT, {"reaches beyond its allocation"});
    call.flags = 0;
    ExpectCode(AllReduce(rank, x.data(), x.data(), &call), SHUNT_INVALID_ARGUMENT,
               {"not SHUNT_CALL_STREAM"});
    call.flags = SHUNT_CALL_STREAM | SHUNT_CALL_ONLY_WHILE_WAITING;
    ExpectCode(AllReduce(rank, x.data(), x.data(), &call), SHUNT_INVALID_ARGUMENT, {"flags is 3"});
    // After all that it works.
    call = OnStream(gpu.stream());
    ExpectOk(AllReduce(rank, x.data(), x.data(), &call));
    ExpectOk(shunt_sync(rank.comm, 0));
  });
  RunRanks(Daemon(), 1, [](const Rank& rank) {
    const OnGpu gpu;
    const Words x(gpu.driver());
    ExpectCode(AllReduce(rank, x.data(), x.data(), nullptr), SHUNT_INVALID_ARGUMENT,
               {"GPU memory", "SHUNT_JOIN_DEVICE"});
    ExpectOk(shunt_register(rank.session, x.data()));
    ExpectCode(AllReduce(rank, x.data(), x.data(), nullptr), SHUNT_INVALID_ARGUMENT,
               {"GPU memory", "SHUNT_JOIN_DEVICE"});
    const shunt_call call = OnStream(gpu.stream());
    ExpectCode(AllReduce(rank, x.data(), x.data(), &call), SHUNT_INVALID_ARGUMENT,
               {"SHUNT_JOIN_DEVICE"});
    uint32_t one = 1;
    ExpectOk(shunt_all_reduce(rank.comm, &one, &one, 1, SHUNT_UINT32, SHUNT_SUM, nullptr, nullptr));
    ExpectOk(shunt_sync(rank.comm, 0));
    ExpectOk(shunt_deregister(rank.session, x.data()));
  });
}

TEST_CASE("shared host memory goes with GPU memory in one call on a stream") {
  Ranks(2, [](const Rank& rank, const OnGpu& gpu) {
    const Words x(gpu.driver());
    x.Set(static_cast<uint32_t>(rank.rank + 3));
    void* shared = nullptr;
    ExpectOk(shunt_alloc(rank.session, kBytes, &shared));
    const shunt_call call = OnStream(gpu.stream());
    ExpectOk(AllReduce(rank, x.data(), static_cast<uint32_t*>(shared), &call));
    ExpectOk(shunt_sync(rank.comm, 0));
    for (size_t i = 0; i < kCount; ++i) {
      Expect(static_cast<uint32_t*>(shared)[i] == 7, "the sum in shared memory");
    }
    ExpectOk(shunt_free(rank.session, shared));
  });
}

TEST_CASE("leaving with calls on a stream lets the stream go on") {
  const std::string name = FreshName();
  REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
    const OnGpu gpu;
    const TestSession session(Daemon().socket());
    const Words x(gpu.driver());
    {
      const TestComm comm = JoinDevice(session, name, r, 2);
      const shunt_call call = OnStream(gpu.stream());
      // Rank 1 never calls.
      if (r == 0) {
        ExpectOk(shunt_all_reduce(comm, x.data(), x.data(), kCount, SHUNT_UINT32, SHUNT_SUM, &call,
                                  nullptr));
      }
    }
    ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
  }));
}

TEST_CASE("a call that cannot be put on its stream ends on all ranks, in words") {
  Ranks(2, [](const Rank& rank, const OnGpu& gpu) {
    const Words x(gpu.driver());
    const shunt_call call = OnStream(gpu.stream());
    if (rank.rank == 0) {
      // cudaStreamDestroy'ed: the driver refuses it.
      const gpu::Stream gone = Got(gpu.driver().CreateStream());
      gpu.driver().DestroyStream(gone);
      const shunt_call wrong = OnStream(gone);
      Expect(AllReduce(rank, x.data(), x.data(), &wrong) != SHUNT_OK, "a stream that is gone");
      ExpectOk(AllReduce(rank, x.data(), x.data(), &call));
    } else {
      ExpectOk(AllReduce(rank, x.data(), x.data(), &call));
    }
    ExpectOk(shunt_sync(rank.comm, 0));
  });
}

}  // namespace
}  // namespace shunt::testing
