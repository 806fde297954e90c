// Gates and the thread that watches over them, against streams of the driver.
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "client/src/cuda/gates.h"
#include "client/src/cuda/watcher.h"
#include "client/src/session.h"
#include "tests/gpu/client_script.h"
#include "tests/gpu/cuda_program.h"
#include "tests/gpu/driver_world.h"

namespace shunt::client {
namespace {

using cuda::Gates;
using cuda::Watcher;
using gpu::MemoryOp;
using gpu::testing::Ok;
using gpu::testing::Value;
using gpu::testing::World;
using testing::ScriptedDaemon;

struct Bench {
  World world;
  ScriptedDaemon daemon;
  std::shared_ptr<Session> session = daemon.Open();
  std::shared_ptr<Watcher> watcher = Value(session->StreamWatcher(&world.driver));
  Gates& gates = watcher->gates();
  gpu::Driver& driver = world.driver;

  // What a call puts on a stream.
  void Enqueue(const Gates::Gate& gate) {
    const MemoryOp ops[] = {{MemoryOp::Kind::kWrite, gate.trigger(), gate.generation},
                            {MemoryOp::Kind::kWaitAtLeast, gate.done(), gate.generation}};
    Ok(driver.Enqueue(world.stream, ops));
  }
  void WaitForTrigger(const Gates::Gate& gate, uint32_t value) {
    while (gate.words->trigger.load() != value) std::this_thread::yield();
  }
};

TEST_CASE("calls in flight have gates of their own, and a gate given back counts on") {
  Bench b;
  std::set<uint64_t> places;
  std::vector<Gates::Gate> gates;
  for (int i = 0; i < 3000; ++i) {
    gates.push_back(Value(b.gates.Take()));
    CHECK(places.insert(gates.back().place.region << 32 | gates.back().place.offset).second);
    CHECK(gates.back().generation == 1);
  }
  b.gates.Give(gates[5]);
  const Gates::Gate again = Value(b.gates.Take());
  CHECK(again.words == gates[5].words);
  CHECK(again.generation == 2);
}

TEST_CASE("a stream passes its gate at the done word, and not before") {
  Bench b;
  const Gates::Gate gate = Value(b.gates.Take());
  b.Enqueue(gate);
  b.WaitForTrigger(gate, 1);
  CHECK(absl::IsUnavailable(b.driver.Query(b.world.stream)));
  gate.words->done.store(1);
  Ok(b.driver.Synchronize(b.world.stream));
}

TEST_CASE("the gate of a failed call serves again only when its stream has come by") {
  Bench b;
  const Gates::Gate held = Value(b.gates.Take());
  b.Enqueue(held);
  b.WaitForTrigger(held, 1);
  const Gates::Gate failed = Value(b.gates.Take());
  b.Enqueue(failed);  // behind the first
  b.gates.GiveLate(failed);
  std::vector<Gates::Gate> others;
  for (int i = 0; i < 2000; ++i) {
    others.push_back(Value(b.gates.Take()));
    CHECK(others.back().words != failed.words);
  }
  Gates::Release(held);
  Ok(b.driver.Synchronize(b.world.stream));  // GiveLate has released the second
  bool again = false;
  for (int i = 0; i < 2000 && !again; ++i) again = Value(b.gates.Take()).words == failed.words;
  CHECK(again);
}

TEST_CASE("repeating gates never become those of single calls") {
  Bench b;
  const Gates::Gate once = Value(b.gates.Take());
  b.gates.Give(once);
  const Gates::Gate repeating = Value(b.gates.TakeRepeating());
  CHECK(repeating.words->trigger.load() == 0);
  repeating.words->trigger.store(1);
  b.gates.GiveRepeating(repeating);
  for (int i = 0; i < 2000; ++i) CHECK(Value(b.gates.Take()).words != repeating.words);
  const Gates::Gate next = Value(b.gates.TakeRepeating());
  CHECK(next.words == repeating.words);
  CHECK(next.words->trigger.load() == 0);
}

TEST_CASE("the first gates may be made while a stream is captured") {
  Bench b;
  gpu::testing::BeginCapture(b.world.stream);
  (void)Value(b.gates.TakeRepeating());
  const gpu::Graph graph = gpu::testing::EndCapture(b.world.stream);
  CHECK(graph != nullptr);
  gpu::testing::DestroyGraph(graph);
}

TEST_CASE("when the daemon dies, streams that wait go on and no call begins any more") {
  Bench b;
  const Gates::Gate gate = Value(b.gates.Take());
  b.Enqueue(gate);
  b.WaitForTrigger(gate, 1);
  const Gates::Gate late = Value(b.gates.Take());  // its stream has not heard of it yet
  b.daemon.Die();
  Ok(b.driver.Synchronize(b.world.stream));
  while (b.gates.Take().ok()) std::this_thread::yield();
  CHECK(absl::IsUnavailable(b.gates.Take().status()));
  b.Enqueue(late);
  Ok(b.driver.Synchronize(b.world.stream));
}

TEST_CASE("when the session is closed, streams that wait go on") {
  Bench b;
  const Gates::Gate gate = Value(b.gates.Take());
  b.Enqueue(gate);
  b.WaitForTrigger(gate, 1);
  b.session->Close();
  Ok(b.driver.Synchronize(b.world.stream));
  CHECK(absl::IsUnavailable(b.gates.Take().status()));
}

struct Graph {
  explicit Graph(Bench& bench) : b(bench) {
    gate = Value(b.gates.TakeRepeating());
    gpu::testing::BeginCapture(b.world.stream);
    const auto facts = Value(b.driver.Capturing(b.world.stream));
    REQUIRE(facts.capturing);
    void* const captured = b.watcher->AddCaptured(watched, 3, gate);
    Ok(b.driver.OnGraphDestroyed(facts.graph, Watcher::GraphDestroyed, captured));
    const MemoryOp ops[] = {{MemoryOp::Kind::kWrite, gate.trigger(), 1},
                            {MemoryOp::Kind::kWaitEqual, gate.done(), 1},
                            {MemoryOp::Kind::kWrite, gate.done(), 0}};
    Ok(b.driver.Enqueue(b.world.stream, ops));
    const gpu::Graph graph = gpu::testing::EndCapture(b.world.stream);
    REQUIRE(graph != nullptr);
    run = gpu::testing::Instantiate(graph);
    gpu::testing::DestroyGraph(graph);
  }
  void Launch() { gpu::testing::LaunchGraph(run, b.world.stream); }
  void Destroy() { gpu::testing::DestroyGraphRun(run); }

  Bench& b;
  // No board: it has left.
  std::shared_ptr<Watcher::Watched> watched = [this] {
    auto w = std::make_shared<Watcher::Watched>(77, board::Board());
    b.watcher->Left(w);
    return w;
  }();
  Gates::Gate gate;
  gpu::testing::GraphRun run = nullptr;
};

TEST_CASE("replays pass whose communicator has been left, and their end is told to the daemon") {
  Bench b;
  Graph graph(b);
  for (int i = 0; i < 3; ++i) graph.Launch();
  Ok(b.driver.Synchronize(b.world.stream));
  CHECK(b.daemon.released().empty());
  graph.Destroy();
  while (b.daemon.released().empty()) std::this_thread::yield();
  CHECK(b.daemon.released()[0].communicator_id() == 77);
  CHECK(b.daemon.released()[0].sequence() == 3);
}

TEST_CASE("replays pass after the session's end, and the thread ends with the last graph") {
  Bench b;
  Graph graph(b);
  b.session->Close();
  for (int i = 0; i < 3; ++i) graph.Launch();
  Ok(b.driver.Synchronize(b.world.stream));
  const std::weak_ptr<Watcher> watcher = b.watcher;
  b.watcher.reset();
  b.session.reset();
  CHECK_FALSE(watcher.expired());
  graph.Destroy();
  while (!watcher.expired()) std::this_thread::yield();
}

}  // namespace
}  // namespace shunt::client
