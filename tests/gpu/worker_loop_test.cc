// The worker as a whole, on a thread, with a driver without a GPU: its control socket, its sleep,
// its end.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <future>
#include <span>
#include <thread>

#include "runtime/core/clock.h"
#include "runtime/core/unix_socket.h"
#include "runtime/gpu/worker/ring_ends.h"
#include "runtime/gpu/worker/worker.h"
#include "tests/gpu/driver_world.h"
#include "tests/gpu/worker_executors.h"

namespace shunt::gpu {
namespace {

using namespace std::chrono_literals;
using testing::Value;
constexpr auto kSoon = 20s;

// Everything ends at once.
class InstantExecutor : public Executor {
 public:
  absl::Status Begin(const Command& command, const Run* runs, uint64_t* completion,
                     uint64_t value) override {
    begun_ns.store(NowNs());
    RunOnCpu(command, runs);
    std::atomic_ref<uint64_t>(*completion).store(value, std::memory_order_release);
    return absl::OkStatus();
  }
  absl::Status Health() override { return absl::OkStatus(); }
  static inline std::atomic<int64_t> begun_ns = 0;
};

struct Looping {
  Looping() : Looping(WorkerOptions{}) {}
  explicit Looping(const WorkerOptions& options) : driver(*Value(Driver::Load())) {
    auto sockets = Value(MakeSocketPair(SocketType::kSeqPacket));
    control = std::move(sockets.first);
    REQUIRE(::fcntl(sockets.second.get(), F_SETFL, O_NONBLOCK) == 0);
    ring_fd = Value(MakeSealedMemfd("ring", sizeof(Ring)));
    memory = Value(Mapping::Map(ring_fd.get(), sizeof(Ring)));
    ring = reinterpret_cast<Ring*>(memory.data());
    worker_doorbell = Value(MakeEventFd());
    shuntd_doorbell = Value(MakeEventFd());
    owner = RingOwner(ring, worker_doorbell.get());
    WorkerFds fds{std::move(sockets.second), Value(Duplicate(ring_fd.get())),
                  Value(Duplicate(worker_doorbell.get())), Value(Duplicate(shuntd_doorbell.get()))};
    end = std::async(std::launch::async, [this, options, fds = std::move(fds)]() mutable {
      return RunWorker(
          &driver, options, std::move(fds),
          [](Driver*, const DeviceFacts&) -> absl::StatusOr<std::unique_ptr<Executor>> {
            return std::make_unique<InstantExecutor>();
          });
    });
  }
  ~Looping() {
    control.Reset();
    if (end.valid()) end.get().IgnoreError();
  }

  Reply Ask(Request request, int fd = -1) {
    request.id = ++last_request;
    REQUIRE(SendWithFds(control.get(), std::as_bytes(std::span(&request, 1)),
                        fd >= 0 ? std::span<const int>(&fd, 1) : std::span<const int>())
                .ok());
    Reply reply{};
    const auto received =
        RecvWithFds(control.get(), std::as_writable_bytes(std::span(&reply, 1)), 0);
    REQUIRE(received.ok());
    REQUIRE(received->bytes == sizeof(reply));
    CHECK(reply.id == request.id);
    return reply;
  }
  Reply Import(uint64_t number, MemoryKind kind, uint64_t bytes, int fd) {
    Request request{};
    request.kind = RequestKind::kImport;
    request.memory = number;
    request.memory_kind = kind;
    request.bytes = bytes;
    return Ask(request, fd);
  }
  Reply Release(uint64_t number) {
    Request request{};
    request.kind = RequestKind::kRelease;
    request.memory = number;
    return Ask(request);
  }
  template <typename F>
  static bool Eventually(F condition) {
    const auto deadline = std::chrono::steady_clock::now() + kSoon;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool Sleeps() {
    return Eventually([this] { return owner.worker_sleeps(); });
  }
  Done Await() {
    Done done{};
    REQUIRE(Eventually([&] { return owner.Pop(&done); }));
    return done;
  }
  void Post(uint64_t id, const Gate* gate) {
    Command* const slot = owner.Slot();
    REQUIRE(slot != nullptr);
    slot->id = id;
    slot->kind = CommandKind::kCollective;
    slot->gates = gate != nullptr ? 1 : 0;
    if (gate != nullptr) slot->gate[0] = *gate;
    owner.Push();
  }

  Driver& driver;
  UniqueFd control, ring_fd, worker_doorbell, shuntd_doorbell;
  Mapping memory;
  Ring* ring = nullptr;
  RingOwner owner;
  uint64_t last_request = 0;
  std::future<absl::Status> end;
};

bool Says(const Reply& reply, absl::StatusCode code, const std::string& words) {
  INFO(reply.code << " " << reply.text);
  CHECK(reply.code == static_cast<int32_t>(code));
  CHECK(std::string(reply.text).find(words) != std::string::npos);
  return reply.code == static_cast<int32_t>(code);
}

TEST_CASE("the worker says what it runs on") {
  Looping worker;
  Request request{};
  request.kind = RequestKind::kAbout;
  const Reply reply = worker.Ask(request);
  const DeviceFacts device = Value(worker.driver.Describe(0));
  CHECK(reply.code == 0);
  CHECK(std::memcmp(reply.uuid, device.uuid.data(), sizeof(reply.uuid)) == 0);
  CHECK(std::string(reply.name) == device.name);
  CHECK(reply.total_bytes == device.total_bytes);
}

TEST_CASE("host memory and allocations come and go in the order of the requests") {
  Looping worker;
  const UniqueFd host = Value(MakeSealedMemfd("host", 8192));
  const Mapping here = Value(Mapping::Map(host.get(), 8192));
  std::memcpy(here.data() + 4096, "shunt", 6);
  const Reply first = worker.Import(1, MemoryKind::kHost, 8192, host.get());
  REQUIRE(first.code == 0);
  CHECK(first.bytes == 8192);
  CHECK(std::memcmp(reinterpret_cast<void*>(first.host_address + 4096), "shunt", 6) == 0);
  CHECK(std::memcmp(reinterpret_cast<void*>(first.address + 4096), "shunt", 6) == 0);
  auto exported = [&] {
    const Context context = Value(worker.driver.RetainPrimary(0));
    REQUIRE(worker.driver.SetCurrent(context).ok());
    return Value(worker.driver.AllocateExportable(0, 1));
  }();
  const Reply second = worker.Import(2, MemoryKind::kVmm, exported.bytes, exported.fd.get());
  REQUIRE(second.code == 0);
  std::memcpy(reinterpret_cast<void*>(exported.address), "gpu", 4);
  CHECK(std::memcmp(reinterpret_cast<void*>(second.address), "gpu", 4) == 0);

  Says(worker.Import(2, MemoryKind::kVmm, exported.bytes, exported.fd.get()),
       absl::StatusCode::kAlreadyExists, "memory 2 is imported already");
  CHECK(worker.Release(2).code == 0);
  Says(worker.Release(2), absl::StatusCode::kNotFound, "memory 2 is not imported");
  CHECK(worker.Import(2, MemoryKind::kVmm, exported.bytes, exported.fd.get()).code == 0);
  CHECK(worker.Release(1).code == 0);

  const UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC));
  CHECK(worker.Import(3, MemoryKind::kHost, 4096, unsealed.get()).code ==
        static_cast<int32_t>(absl::StatusCode::kInvalidArgument));
  CHECK(worker.Import(3, MemoryKind::kHost, 16384, host.get()).code ==
        static_cast<int32_t>(absl::StatusCode::kInvalidArgument));
  Says(worker.Import(3, MemoryKind::kVmm, exported.bytes, -1), absl::StatusCode::kInvalidArgument,
       "without a descriptor");
  CHECK(worker.Import(3, MemoryKind::kHost, 8192, host.get()).code == 0);
}

TEST_CASE("a worker with nothing to do sleeps, and is woken by its doorbell") {
  Looping worker;
  REQUIRE(worker.Sleeps());
  const uint64_t turns = worker.owner.turns();
  worker.Post(1, nullptr);
  CHECK(worker.Await().id == 1);
  CHECK(worker.owner.turns() > turns);
  REQUIRE(worker.Sleeps());
  // A request wakes it too.
  Request request{};
  request.kind = RequestKind::kAbout;
  CHECK(worker.Ask(request).code == 0);
  CHECK(worker.Sleeps());
}

TEST_CASE("an armed gate is seen while it spins, and when it has begun to sleep between looks") {
  WorkerOptions options;
  options.armed_spin_ns = GENERATE(int64_t{0}, int64_t{60'000'000'000});
  Looping worker(options);
  GateWords words{};
  const auto address = reinterpret_cast<uint64_t>(&words);
  for (uint32_t round = 1; round <= 50; ++round) {
    const Gate gate{address, address, round, 0};
    worker.Post(round, &gate);
    // It is armed when the ring has been emptied.
    REQUIRE(Looping::Eventually([&] { return worker.ring->command_head.load() == round; }));
    words.trigger.store(round);
    const Done done = worker.Await();
    CHECK(done.id == round);
    CHECK(done.code == 0);
    CHECK(words.done == round);
  }
}

TEST_CASE("the worker ends with its control socket, also while gates are armed") {
  Looping worker;
  GateWords words{};
  const auto address = reinterpret_cast<uint64_t>(&words);
  const Gate gate{address, address, 1, 0};
  worker.Post(1, &gate);
  REQUIRE(Looping::Eventually([&] { return worker.ring->command_head.load() == 1; }));
  worker.control.Reset();
  REQUIRE(worker.end.wait_for(kSoon) == std::future_status::ready);
  CHECK(worker.end.get().ok());
}

TEST_CASE("a worker for another GPU than there is does not begin") {
  WorkerOptions options;
  options.uuid[3] = std::byte{7};
  Looping worker(options);
  REQUIRE(worker.end.wait_for(kSoon) == std::future_status::ready);
  CHECK(absl::IsNotFound(worker.end.get()));
}

// For whoever measures: gpu_worker_loop_test "[latency]".
TEST_CASE("from trigger to launch", "[.][latency]") {
  Looping worker;
  GateWords words{};
  const auto address = reinterpret_cast<uint64_t>(&words);
  std::vector<int64_t> took;
  for (uint32_t round = 1; round <= 20000; ++round) {
    const Gate gate{address, address, round, 0};
    worker.Post(round, &gate);
    while (worker.ring->command_head.load() != round) {
    }
    for (int i = 0; i < 2000; ++i) __builtin_ia32_pause();
    const int64_t begin = NowNs();
    words.trigger.store(round);
    Done done{};
    while (!worker.owner.Pop(&done)) {
    }
    took.push_back(InstantExecutor::begun_ns.load() - begin);
  }
  std::sort(took.begin(), took.end());
  std::printf("trigger to launch: median %ld ns, 90%% %ld ns, 99%% %ld ns\n",
              static_cast<long>(took[took.size() / 2]),
              static_cast<long>(took[took.size() * 9 / 10]),
              static_cast<long>(took[took.size() * 99 / 100]));
}

}  // namespace
}  // namespace shunt::gpu
