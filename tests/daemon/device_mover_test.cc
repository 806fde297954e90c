// Several threads that walk one plan at once: what arrives, and what a cancel or a worker's death
// in the middle leaves.
#include "daemon/gpu/device_mover.h"

#include <signal.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/daemon/gpu_world.h"

namespace shunt::daemon {
namespace {

GpuWorkers::Options Patient() {
  GpuWorkers::Options options = GpuWorld::Defaults();
  options.look = 1s;  // some workers here are stopped for a while
  return options;
}

std::vector<uint32_t> Permuted(uint64_t count, uint32_t seed) {
  std::vector<uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
  return ids;
}

// Memory of GPU 0, each byte of which tells where it is.
struct Memory {
  Memory(GpuWorld& world, const std::shared_ptr<Session>& session, uint64_t bytes, uint8_t salt)
      : exported(Value(world.client.driver.AllocateExportable(0, bytes))),
        region(world.Region(session, exported)->id),
        data(reinterpret_cast<uint8_t*>(exported.address)),
        salt(salt) {
    for (uint64_t i = 0; i < exported.bytes; ++i) data[i] = At(i);
  }
  uint8_t At(uint64_t i) const { return static_cast<uint8_t>((i * 131 + i / 251) ^ salt); }
  // Pieces of `bytes`, one behind the other from `offset` on, and one of `tail` bytes behind them.
  std::shared_ptr<const p2p::PreparedList> List(uint64_t bytes, uint64_t count,
                                                uint64_t tail = 0) const {
    p2p::Section section;
    section.name = "blocks";
    section.regions = {{region, exported.bytes}};
    section.sets = {{region, 0, bytes, {{{1, 0}, {1, 0}, {count, static_cast<int64_t>(bytes)}}}}};
    if (tail > 0) section.sets.push_back({region, bytes * count, tail, {{{1, 0}, {1, 0}, {1, 0}}}});
    return Value(p2p::PreparedList::Prepare(std::move(section), kDeviceSpace));
  }

  gpu::Driver::Exportable exported;
  uint64_t region;
  uint8_t* data;
  uint8_t salt;
};

struct World {
  explicit World(int threads) : pool({.threads = threads}) {}
  ~World() {
    pool.Stop();
    engine.Stop();
    gpus.workers->Stop();
  }

  struct Moving {
    std::shared_ptr<DeviceMover> mover;
    std::future<absl::Status> end;
    absl::Status Wait() {
      REQUIRE(end.wait_for(kSoon) == std::future_status::ready);
      return end.get();
    }
  };
  Moving Move(const p2p::Selection& source, const p2p::Selection& destination,
              p2p::Priority priority = p2p::Priority::kBulk) {
    DeviceMover::Setup setup;
    setup.engine = &engine;
    setup.pool = &pool;
    setup.plan = Value(p2p::TransferPlan::Make(source, destination));
    for (const p2p::Selection* side : {&source, &destination}) {
      for (const auto& one : side->regions()) {
        setup.memory.push_back(Value(engine.Hold(session->id, one.id, "a test")));
      }
    }
    setup.worker = Value(engine.WorkerFor(setup.memory));
    setup.priority = priority;
    Moving moving{std::make_shared<DeviceMover>(std::move(setup)), {}};
    auto end = std::make_shared<std::promise<absl::Status>>();
    moving.end = end->get_future();
    moving.mover->Start([end](const absl::Status& status) { end->set_value(status); });
    return moving;
  }
  // Of a worker that runs, or is waited for.
  pid_t pid() {
    pid_t pid = 0;
    REQUIRE(Eventually([&] {
      const GpuView view = gpus.worker()->View();
      pid = view.state == "ready" ? view.pid : 0;
      return pid > 1;
    }));
    return pid;
  }
  // Commands that it has been given and that have not ended.
  uint64_t commands() { return gpus.worker()->View().commands; }

  GpuWorld gpus{Patient()};
  std::shared_ptr<Session> session = gpus.NewSession();
  GpuEngine engine{gpus.workers.get(), &gpus.regions, &gpus.table};
  p2p::WorkPool pool;
};

// 192 bytes in 64 and in 48, in orders of their own.
constexpr uint64_t kSmall = 48, kLarge = 64;
constexpr uint64_t kSmalls = 280'000, kLarges = kSmalls / kLarge * kSmall;
static_assert(kSmalls * kSmall == kLarges * kLarge);
constexpr uint64_t kBytes = kSmalls * kSmall;

struct Blocks {
  Blocks(World& world, uint8_t salt)
      : from(world.gpus, world.session, kBytes, salt),
        to(world.gpus, world.session, kBytes, static_cast<uint8_t>(salt + 1)),
        from_ids(Permuted(kSmalls, salt)),
        to_ids(Permuted(kLarges, salt + 1)) {}
  World::Moving Move(World& world, p2p::Priority priority = p2p::Priority::kBulk) {
    return world.Move(
        Value(p2p::Selection::Ids(from.List(kSmall, kSmalls), absl::MakeConstSpan(from_ids))),
        Value(p2p::Selection::Ids(to.List(kLarge, kLarges), absl::MakeConstSpan(to_ids))),
        priority);
  }
  // Bytes that are neither what was there nor what was to come; and such as have not come.
  std::pair<uint64_t, uint64_t> WrongAndOld() const {
    uint64_t wrong = 0, old = 0;
    for (uint64_t k = 0; k < kBytes; ++k) {
      const uint64_t source = from_ids[k / kSmall] * kSmall + k % kSmall;
      const uint64_t target = to_ids[k / kLarge] * kLarge + k % kLarge;
      if (to.data[target] == from.At(source)) continue;
      ++(to.data[target] == to.At(target) ? old : wrong);
    }
    return {wrong, old};
  }

  Memory from, to;
  std::vector<uint32_t> from_ids, to_ids;
};
const std::pair<uint64_t, uint64_t> kAllMoved = {0, 0};

TEST_CASE("many runs arrive, however many threads walk the plan") {
  World world(GENERATE(1, 2, 3, 8));
  Blocks blocks(world, 11);
  CHECK(blocks.Move(world).Wait() == absl::OkStatus());
  CHECK(blocks.WrongAndOld() == kAllMoved);
}

TEST_CASE("transfers of all classes are walked at once, and arrive") {
  World world(GENERATE(1, 4));
  Blocks a(world, 20), b(world, 30), c(world, 40);
  World::Moving moving[] = {a.Move(world, p2p::Priority::kBackground),
                            b.Move(world, p2p::Priority::kBulk),
                            c.Move(world, p2p::Priority::kLatency)};
  for (World::Moving& one : moving) CHECK(one.Wait() == absl::OkStatus());
  for (const Blocks* one : {&a, &b, &c}) CHECK(one->WrongAndOld() == kAllMoved);
}

TEST_CASE("long pieces among short ones arrive, whatever their order") {
  World world(GENERATE(1, 4));
  constexpr uint64_t kPieces = 60'000, kTail = (3 << 20) + 5;
  constexpr uint64_t kTotal = kPieces * 16 + kTail;
  const Memory from(world.gpus, world.session, kTotal, 1), to(world.gpus, world.session, kTotal, 2);
  const bool last = GENERATE(false, true);
  std::vector<uint32_t> ids = Permuted(kPieces, 5);
  ids.insert(last ? ids.end() : ids.begin() + 30'000, kPieces);
  const auto list = to.List(16, kPieces, kTail);
  const auto source = from.List(kTotal, 1);
  CHECK(world
            .Move(Value(p2p::Selection::All(source)),
                  Value(p2p::Selection::Ids(list, absl::MakeConstSpan(ids))))
            .Wait() == absl::OkStatus());
  uint64_t k = 0, wrong = 0;
  for (const uint32_t id : ids) {
    const uint64_t bytes = id == kPieces ? kTail : 16;
    for (uint64_t i = 0; i < bytes; ++i) wrong += to.data[id * 16 + i] != from.At(k++);
  }
  CHECK(k == kTotal);
  CHECK(wrong == 0);
}

TEST_CASE("transfers that find no batch free wait for others', and arrive") {
  World world(4);
  Blocks a(world, 50), b(world, 60), c(world, 70);
  CHECK(a.Move(world).Wait() == absl::OkStatus());  // imported
  CHECK(b.Move(world).Wait() == absl::OkStatus());
  const pid_t pid = world.pid();
  ::kill(pid, SIGSTOP);
  World::Moving moving[] = {a.Move(world), b.Move(world), c.Move(world)};
  CHECK(Eventually([&] { return world.commands() == gpu::kRunBatches; }));
  ::kill(pid, SIGCONT);
  for (World::Moving& one : moving) CHECK(one.Wait() == absl::OkStatus());
  for (const Blocks* one : {&a, &b, &c}) CHECK(one->WrongAndOld() == kAllMoved);
}

TEST_CASE("a transfer cancelled while threads walk it ends so, and nothing of it comes later") {
  World world(GENERATE(1, 4));
  Blocks blocks(world, 80);
  const pid_t pid = world.pid();
  ::kill(pid, SIGSTOP);
  World::Moving moving = blocks.Move(world);
  // Some is under way, and there is more than may be.
  const bool stopped_late = Eventually([&] { return world.commands() >= 3; });
  moving.mover->Cancel(absl::CancelledError("no more"));
  moving.mover->Cancel(absl::DeadlineExceededError("too late"));
  ::kill(pid, SIGCONT);
  CHECK(stopped_late);
  CHECK(moving.Wait() == absl::CancelledError("no more"));
  const auto [wrong, old] = blocks.WrongAndOld();
  CHECK(wrong == 0);
  CHECK(old > 0);
  CHECK(world.commands() == 0);
  // All is let go of, and serves the next.
  CHECK(blocks.Move(world).Wait() == absl::OkStatus());
  CHECK(blocks.WrongAndOld() == kAllMoved);
}

TEST_CASE("a worker that dies while threads walk ends the transfer; the next one serves") {
  World world(GENERATE(1, 4));
  Blocks blocks(world, 90);
  CHECK(blocks.Move(world).Wait() == absl::OkStatus());
  const pid_t pid = world.pid();
  ::kill(pid, SIGSTOP);
  World::Moving moving = blocks.Move(world);
  CHECK(Eventually([&] { return world.commands() >= 3; }));
  ::kill(pid, SIGKILL);
  const absl::Status end = moving.Wait();
  CHECK(absl::IsUnavailable(end));
  CHECK(end.message().find("GPU 0") != absl::string_view::npos);
  CHECK(blocks.Move(world).Wait() == absl::OkStatus());
  CHECK(blocks.WrongAndOld() == kAllMoved);
}

TEST_CASE("a transfer posted as the worker dies begins anew with the next one, or says so") {
  World world(4);
  Blocks blocks(world, 100);
  for (int round = 0; round < 4; ++round) {
    ::kill(world.pid(), SIGKILL);
    const absl::Status end = blocks.Move(world).Wait();
    INFO(end.ToString());
    CHECK((end.ok() || absl::IsUnavailable(end)));
    if (end.ok()) CHECK(blocks.WrongAndOld() == kAllMoved);
  }
}

}  // namespace
}  // namespace shunt::daemon
