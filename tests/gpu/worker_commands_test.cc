#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <vector>

#include "runtime/core/clock.h"
#include "runtime/gpu/worker/commands.h"
#include "tests/gpu/worker_executors.h"

namespace shunt::gpu {
namespace {

constexpr int32_t kOk = 0;
constexpr auto kCancelled = static_cast<int32_t>(absl::StatusCode::kCancelled);
constexpr auto kDataLoss = static_cast<int32_t>(absl::StatusCode::kDataLoss);

// Both ends of a ring, the commands of a worker, and gates in memory of the test's.
struct World {
  std::unique_ptr<Ring> ring = std::make_unique<Ring>();
  UniqueFd worker_doorbell = *MakeEventFd(), shuntd_doorbell = *MakeEventFd();
  RingOwner owner{ring.get(), worker_doorbell.get()};
  RingWorker worker{ring.get(), shuntd_doorbell.get()};
  HeldExecutor executor;
  std::vector<uint64_t> words;
  std::unique_ptr<Commands> commands;
  GateWords gates[kGatesMax] = {};
  uint64_t last_id = 0;

  explicit World(uint32_t at_once = 8) : words(at_once) {
    commands = std::make_unique<Commands>(&executor, &worker,
                                          CompletionWords{words.data(), words.data(), at_once});
  }

  Gate GateAt(int index, uint32_t generation) {
    const auto address = reinterpret_cast<uint64_t>(&gates[index]);
    return {address, address, generation, 0};
  }

  struct Made {
    uint64_t lane = 0;
    uint32_t flags = 0;
    std::vector<Gate> gates = {};
  };
  uint64_t Post(const Made& made) {
    Command* const slot = owner.Slot();
    REQUIRE(slot != nullptr);
    slot->id = ++last_id;
    slot->kind = CommandKind::kCollective;
    slot->lane = made.lane;
    slot->flags = made.flags;
    slot->gates = static_cast<uint32_t>(made.gates.size());
    std::copy(made.gates.begin(), made.gates.end(), slot->gate);
    owner.Push();
    return last_id;
  }
  void Cancel(uint64_t id) {
    Command* const slot = owner.Slot();
    REQUIRE(slot != nullptr);
    slot->id = ++last_id;
    slot->kind = CommandKind::kCancel;
    slot->target = id;
    owner.Push();
  }
  // Until nothing moves any more.
  void Turn() {
    for (;;) {
      const absl::StatusOr<bool> moved = commands->Turn();
      REQUIRE(moved.ok());
      if (!*moved) return;
    }
  }
  std::vector<std::pair<uint64_t, int32_t>> Ends() {
    std::vector<std::pair<uint64_t, int32_t>> ends;
    Done done{};
    while (owner.Pop(&done)) ends.emplace_back(done.id, done.code);
    return ends;
  }
  using EndList = std::vector<std::pair<uint64_t, int32_t>>;
  using Ids = std::vector<uint64_t>;
};

TEST_CASE(
    "a command begins when the last of its gates has triggered, and releases them at its end") {
  World world;
  const uint64_t id = world.Post({.gates = {world.GateAt(0, 7), world.GateAt(1, 3)}});
  world.Turn();
  CHECK(world.executor.begun.empty());
  world.gates[1].trigger = 3;
  world.Turn();
  CHECK(world.executor.begun.empty());
  world.gates[0].trigger = 6;
  world.Turn();
  CHECK(world.executor.begun.empty());
  world.gates[0].trigger = 7;
  world.Turn();
  CHECK(world.executor.begun == World::Ids{id});
  CHECK(world.commands->running());
  CHECK(world.Ends().empty());
  world.executor.EndOne();
  world.Turn();
  CHECK(world.Ends() == World::EndList{{id, kOk}});
  CHECK(world.gates[0].done == 7);
  CHECK(world.gates[1].done == 3);
  CHECK_FALSE(world.commands->running());
  CHECK_FALSE(world.commands->armed());
}

TEST_CASE("a gate counts around the end of its numbers") {
  World world;
  const uint64_t id = world.Post({.gates = {world.GateAt(0, 2)}});
  world.gates[0].trigger = 0xfffffffe;  // four rounds before
  world.Turn();
  CHECK(world.executor.begun.empty());
  world.gates[0].trigger = 4;  // the stream is further already
  world.Turn();
  CHECK(world.executor.begun == World::Ids{id});
}

TEST_CASE("a command without gates begins at once") {
  World world;
  const uint64_t id = world.Post({});
  const uint64_t other = world.Post({.gates = {Gate{}}});  // a rank without a stream
  world.Turn();
  CHECK(world.executor.begun == World::Ids{id, other});
}

TEST_CASE("words that a client has made up neither begin nor end what is another's") {
  World world;
  const uint64_t hostile = world.Post({.gates = {world.GateAt(0, 5)}});
  const uint64_t other = world.Post({.gates = {world.GateAt(1, 5)}});
  for (const uint32_t word : {0x80000004u, 0xffffffffu, 0x7fffffffu, 0u}) {
    world.gates[0].trigger = word;
    world.gates[0].done = word;
    world.Turn();
  }
  // 0x7fffffff is ahead of 5: its own operation was hurried.
  CHECK(world.executor.begun == World::Ids{hostile});
  world.executor.EndOne();
  world.gates[1].trigger = 5;
  world.Turn();
  CHECK(world.executor.begun == World::Ids{hostile, other});
  world.executor.EndOne();
  world.Turn();
  CHECK(world.Ends() == World::EndList{{hostile, kOk}, {other, kOk}});
  CHECK(world.gates[1].done == 5);
}

TEST_CASE("commands of a lane begin in their order, others do not wait for them") {
  World world;
  const uint64_t first = world.Post({.lane = 3, .gates = {world.GateAt(0, 1)}});
  const uint64_t second = world.Post({.lane = 3});
  const uint64_t third = world.Post({.lane = 3});
  const uint64_t other = world.Post({.lane = 4});
  const uint64_t none = world.Post({});
  world.Turn();
  CHECK(world.executor.begun == World::Ids{other, none});
  world.gates[0].trigger = 1;
  world.Turn();
  CHECK(world.executor.begun == World::Ids{other, none, first});
  for (int i = 0; i < 3; ++i) world.executor.EndOne();
  world.Turn();
  CHECK(world.executor.begun == World::Ids{other, none, first, second});
  world.executor.EndOne();
  world.Turn();
  CHECK(world.executor.begun == World::Ids{other, none, first, second, third});
}

TEST_CASE("a command that is cancelled before it begins releases its gates and says so") {
  World world;
  const uint64_t armed = world.Post({.lane = 2, .gates = {world.GateAt(0, 9)}});
  const uint64_t queued = world.Post({.lane = 2, .gates = {world.GateAt(1, 4)}});
  const uint64_t last = world.Post({.lane = 2, .gates = {world.GateAt(2, 1)}});
  world.Turn();
  world.Cancel(queued);
  world.Turn();
  CHECK(world.Ends() == World::EndList{{queued, kCancelled}});
  CHECK(world.gates[1].done == 4);
  CHECK(world.gates[0].done == 0);
  world.Cancel(armed);
  world.Turn();
  CHECK(world.Ends() == World::EndList{{armed, kCancelled}});
  CHECK(world.gates[0].done == 9);
  // The lane goes on.
  CHECK(world.executor.begun.empty());
  world.gates[2].trigger = 1;
  world.Turn();
  CHECK(world.executor.begun == World::Ids{last});
}

TEST_CASE("a command that has begun ends by itself, cancelled or not") {
  World world;
  const uint64_t id = world.Post({.gates = {world.GateAt(0, 1)}});
  world.gates[0].trigger = 1;
  world.Turn();
  world.Cancel(id);
  world.Turn();
  CHECK(world.Ends().empty());
  CHECK(world.gates[0].done == 0);
  world.executor.EndOne();
  world.Turn();
  CHECK(world.Ends() == World::EndList{{id, kOk}});
  world.Cancel(id);
  world.Cancel(12345);
  world.Turn();
  CHECK(world.Ends().empty());
}

TEST_CASE("a repeating command serves round after round, and takes its triggers back") {
  World world;
  const uint64_t id =
      world.Post({.flags = kRepeats, .gates = {world.GateAt(0, 0), world.GateAt(1, 0)}});
  for (size_t round = 1; round <= 3; ++round) {
    world.gates[0].trigger = 1;
    world.Turn();
    CHECK(world.executor.begun.size() == round - 1);
    world.gates[1].trigger = 1;
    world.Turn();
    CHECK(world.executor.begun.size() == round);
    CHECK(world.gates[0].trigger == 0);
    CHECK(world.gates[1].trigger == 0);
    CHECK(world.gates[0].done == 0);
    world.executor.EndOne();
    world.Turn();
    for (int i = 0; i < 2; ++i) CHECK(world.gates[i].done.exchange(0) == 1);  // the streams' part
  }
  CHECK(world.Ends().empty());
  // A level that is neither 0 nor 1 is no trigger.
  world.gates[0].trigger = 2;
  world.gates[1].trigger = 1;
  world.Turn();
  CHECK(world.executor.begun.size() == 3);
  world.Cancel(id);
  world.Turn();
  CHECK(world.Ends() == World::EndList{{id, kCancelled}});
  CHECK(world.gates[0].done == 1);
  CHECK_FALSE(world.commands->armed());
}

TEST_CASE("a repeating command that runs is removed when its run has ended") {
  World world;
  const uint64_t id = world.Post({.flags = kRepeats, .gates = {world.GateAt(0, 0)}});
  world.gates[0].trigger = 1;
  world.Turn();
  world.Cancel(id);
  world.Turn();
  CHECK(world.Ends().empty());
  world.executor.EndOne();
  world.Turn();
  CHECK(world.Ends() == World::EndList{{id, kCancelled}});
  world.gates[0].trigger = 1;
  world.Turn();
  CHECK(world.executor.begun.size() == 1);
}

TEST_CASE("a launch that fails ends its command alone, with its gates released") {
  World world;
  world.executor.next_begin = absl::InvalidArgumentError("a count that no kernel takes");
  const uint64_t bad = world.Post({.lane = 1, .gates = {world.GateAt(0, 2)}});
  const uint64_t good = world.Post({.lane = 1});
  world.gates[0].trigger = 2;
  world.Turn();
  CHECK(world.Ends() ==
        World::EndList{{bad, static_cast<int32_t>(absl::StatusCode::kInvalidArgument)}});
  CHECK(world.gates[0].done == 2);
  CHECK(world.executor.begun == World::Ids{good});
}

TEST_CASE("a lost context releases the gates of everything under way") {
  World world;
  world.Post({.gates = {world.GateAt(0, 1)}});
  world.gates[0].trigger = 1;
  world.Turn();  // it runs, and will never end
  world.Post({.lane = 1, .gates = {world.GateAt(1, 8)}});
  world.Post({.lane = 1, .gates = {world.GateAt(2, 6)}});
  world.Post({.flags = kRepeats, .gates = {world.GateAt(3, 0)}});
  world.Turn();
  world.executor.next_begin = absl::DataLossError("an illegal address");
  world.Post({.gates = {world.GateAt(4, 3)}});
  world.gates[4].trigger = 3;
  absl::StatusOr<bool> moved = true;
  while (moved.ok() && *moved) moved = world.commands->Turn();
  REQUIRE(absl::IsDataLoss(moved.status()));
  world.commands->LoseAll(moved.status());
  const uint32_t released[] = {1, 8, 6, 1, 3};
  for (int i = 0; i < 5; ++i) CHECK(world.gates[i].done == released[i]);
  World::EndList ends = world.Ends();
  std::sort(ends.begin(), ends.end());
  CHECK(ends ==
        World::EndList{
            {1, kDataLoss}, {2, kDataLoss}, {3, kDataLoss}, {4, kDataLoss}, {5, kDataLoss}});
}

TEST_CASE("more commands than may run at once wait, and all of them end") {
  World world(/*at_once=*/2);
  for (int i = 0; i < 5; ++i) world.Post({});
  world.Turn();
  CHECK(world.executor.begun.size() == 2);
  for (size_t ended = 1; ended <= 5; ++ended) {
    world.executor.EndOne();
    world.Turn();
    CHECK(world.Ends().size() == 1);
  }
  CHECK(world.executor.begun == World::Ids{1, 2, 3, 4, 5});
}

TEST_CASE("a ring that is full refuses, and takes more when the worker has taken some") {
  World world;
  for (uint32_t i = 0; i < kCommandSlots; ++i) world.Post({.gates = {world.GateAt(0, 1)}});
  CHECK(world.owner.Slot() == nullptr);
  world.Turn();
  CHECK(world.owner.Slot() != nullptr);
}

TEST_CASE("ends that the ring has no room for are said when there is") {
  World world;
  std::vector<uint64_t> ids;
  // Repeating ones are not bounded by the slots.
  for (uint32_t i = 0; i < 3 * kCommandSlots; ++i) {
    ids.push_back(world.Post({.flags = kRepeats, .gates = {world.GateAt(0, 0)}}));
    world.Turn();
  }
  for (const uint64_t id : ids) {
    world.Cancel(id);
    world.Turn();
  }
  CHECK(world.commands->unsaid());
  World::EndList all;
  while (all.size() < ids.size()) {
    const World::EndList some = world.Ends();
    REQUIRE_FALSE(some.empty());
    all.insert(all.end(), some.begin(), some.end());
    world.Turn();
  }
  CHECK_FALSE(world.commands->unsaid());
  for (size_t i = 0; i < ids.size(); ++i) CHECK(all[i] == std::pair(ids[i], kCancelled));
}

TEST_CASE("who sleeps is rung once, and not while it is awake") {
  World world;
  CHECK_FALSE(world.worker.MayNotSleep());
  world.Post({});
  CHECK(DrainEventFd(world.worker_doorbell.get()) == 1);
  world.Post({});
  CHECK(DrainEventFd(world.worker_doorbell.get()) == 0);
  CHECK(world.worker.MayNotSleep());
  world.worker.Awake();
  world.Turn();
  CHECK_FALSE(world.owner.MayNotSleep());
  world.executor.EndOne();
  world.Turn();
  CHECK(DrainEventFd(world.shuntd_doorbell.get()) == 1);
  CHECK(world.owner.MayNotSleep());
}

// For whoever measures: gpu_worker_commands_test "[latency]". Our own code alone: a turn of the
// loop from a trigger that is there to the launch, beside others that are armed.
TEST_CASE("a turn from trigger to launch", "[.][latency]") {
  class Stamp : public Executor {
   public:
    absl::Status Begin(const Command&, const Run*, uint64_t* completion, uint64_t value) override {
      at_ns = NowNs();
      *completion = value;
      return absl::OkStatus();
    }
    absl::Status Health() override { return absl::OkStatus(); }
    int64_t at_ns = 0;
  } stamp;
  const int gates = GENERATE(1, 8);
  const int others = GENERATE(0, 64);
  World world;
  world.commands = std::make_unique<Commands>(
      &stamp, &world.worker, CompletionWords{world.words.data(), world.words.data(), 8});
  for (int i = 0; i < others; ++i) world.Post({.gates = {world.GateAt(100, 1)}});
  std::vector<int64_t> took;
  for (uint32_t round = 1; round <= 20'000; ++round) {
    World::Made made;
    for (int i = 0; i < gates; ++i) made.gates.push_back(world.GateAt(i, round));
    world.Post(made);
    world.Turn();
    for (int i = 0; i < gates; ++i) world.gates[i].trigger.store(round);
    const int64_t begin = NowNs();
    world.Turn();
    took.push_back(stamp.at_ns - begin);
    world.Ends();
  }
  std::sort(took.begin(), took.end());
  std::printf("%d gates, %d others armed: median %ld ns, 99%% %ld ns\n", gates, others,
              static_cast<long>(took[took.size() / 2]),
              static_cast<long>(took[took.size() * 99 / 100]));
}

}  // namespace
}  // namespace shunt::gpu
