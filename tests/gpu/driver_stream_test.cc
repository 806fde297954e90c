// Order in streams, waits, events, captures. On the fake and on a GPU.
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/core/fd.h"
#include "runtime/gpu/driver.h"
#include "tests/gpu/cuda_program.h"
#include "tests/gpu/driver_child.h"
#include "tests/gpu/driver_world.h"

namespace shunt::gpu::testing {
namespace {

using Op = MemoryOp::Kind;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

// Looks until the device has stored it; the test's time limit ends it otherwise.
void Await(std::atomic_ref<uint32_t> word, uint32_t value) {
  while (word.load(std::memory_order_acquire) != value) {
  }
}

TEST_CASE("a stream's write comes after what was before it") {
  World world;
  Driver& driver = world.driver;
  Words words(driver);
  const DevicePtr memory = Value(driver.Allocate(64 << 20));
  Ok(driver.FillAsync(memory, 0xAB, 64 << 20, world.stream));
  Ok(driver.CopyAsync(words.AddressOf(4), memory + (64 << 20) - 4, 4, world.stream));
  Ok(driver.Enqueue(world.stream, {{{Op::kWrite, words.AddressOf(0), 5}}}));
  Await(words.At(0), 5);
  CHECK(words.At(4).load() == 0xABABABAB);
  Ok(driver.Synchronize(world.stream));
  Ok(driver.Free(memory));
}

TEST_CASE("a stream waits until another process stores the word") {
  World world;
  Driver& driver = world.driver;
  Words words(driver);
  Ok(driver.Enqueue(world.stream, {{{Op::kWrite, words.AddressOf(1), 1},
                                    {Op::kWaitEqual, words.AddressOf(0), 77},
                                    {Op::kWrite, words.AddressOf(2), 1}}}));
  Await(words.At(1), 1);
  CHECK(driver.Query(world.stream).code() == kUnavailable);
  CHECK(words.At(2).load() == 0);
  Child child({"store", "77"}, words.file.get());
  CHECK(child.Line() == "stored");
  Ok(driver.Synchronize(world.stream));
  CHECK(words.At(2).load() == 1);
  Ok(driver.Query(world.stream));
  CHECK(child.Wait() == 0);
}

TEST_CASE("a wait for at least a value goes by the signed difference") {
  World world;
  Driver& driver = world.driver;
  Words words(driver);
  struct Case {
    uint32_t wanted, too_small, enough;
  };
  for (const Case& c : {Case{10, 9, 10}, Case{10, 0xFFFFFFFF, 11}, Case{2, 0xFFFFFFF0, 3},
                        Case{0xFFFFFFFE, 0xFFFFFFFD, 1}, Case{1, 0x80000001, 0x80000000}}) {
    CAPTURE(c.wanted, c.too_small, c.enough);
    words.At(0) = c.too_small;
    words.At(1) = 0;
    Ok(driver.Enqueue(world.stream, {{{Op::kWrite, words.AddressOf(1), 1},
                                      {Op::kWaitAtLeast, words.AddressOf(0), c.wanted}}}));
    Await(words.At(1), 1);
    CHECK(driver.Query(world.stream).code() == kUnavailable);
    words.At(0) = c.enough;
    Ok(driver.Synchronize(world.stream));
  }
}

TEST_CASE("streams do not wait for each other") {
  World world;
  Driver& driver = world.driver;
  Words words(driver);
  const Stream other = Value(driver.CreateStream());
  Ok(driver.Enqueue(world.stream, {{{Op::kWaitEqual, words.AddressOf(0), 1}}}));
  Ok(driver.Enqueue(other, {{{Op::kWrite, words.AddressOf(0), 1}}}));
  Ok(driver.Synchronize(world.stream));
  Ok(driver.Synchronize(other));
  CHECK(Value(driver.ContextOf(other)) == world.context);
  CHECK(Value(driver.ContextOf(nullptr)) == world.context);
  driver.DestroyStream(other);
}

TEST_CASE("events tell when their place in the stream was reached") {
  World world;
  Driver& driver = world.driver;
  Words words(driver);
  const Event begin = Value(driver.CreateEvent()), end = Value(driver.CreateEvent());
  Ok(driver.QueryEvent(begin));  // never recorded
  Ok(driver.Record(begin, world.stream));
  Ok(driver.Enqueue(world.stream, {{{Op::kWaitEqual, words.AddressOf(0), 1}}}));
  Ok(driver.Record(end, world.stream));
  CHECK(driver.QueryEvent(end).code() == kUnavailable);
  CHECK(driver.MillisecondsBetween(begin, end).status().code() == kUnavailable);
  words.At(0) = 1;
  Ok(driver.Synchronize(world.stream));
  Ok(driver.QueryEvent(end));
  CHECK(Value(driver.MillisecondsBetween(begin, end)) >= 0);
  driver.DestroyEvent(begin);
  driver.DestroyEvent(end);
}

// Called back by the driver from a thread of its own.
struct Bell {
  static void Ring(void* self) { static_cast<Bell*>(self)->Count(); }
  void Count() {
    const std::lock_guard lock(mutex);
    ++rung;
    changed.notify_all();
  }
  void WaitFor(int times) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return rung >= times; });
  }
  int Rung() {
    const std::lock_guard lock(mutex);
    return rung;
  }
  std::mutex mutex;
  std::condition_variable changed;
  int rung = 0;
};

TEST_CASE("a captured exchange of words repeats with each replay") {
  World world;
  Driver& driver = world.driver;
  Words words(driver);
  CHECK(!Value(driver.Capturing(world.stream)).capturing);
  Bell gone;

  BeginCapture(world.stream);
  const CaptureFacts facts = Value(driver.Capturing(world.stream));
  CHECK(facts.capturing);
  CHECK(facts.graph != nullptr);
  Ok(driver.Enqueue(world.stream, {{{Op::kWrite, words.AddressOf(0), 1},
                                    {Op::kWaitEqual, words.AddressOf(1), 1},
                                    {Op::kWrite, words.AddressOf(1), 0}}}));
  Ok(driver.FillAsync(words.AddressOf(3), 7, 4, world.stream));
  Ok(driver.OnGraphDestroyed(facts.graph, Bell::Ring, &gone));
  const Graph graph = EndCapture(world.stream);
  REQUIRE(graph == facts.graph);
  CHECK(!Value(driver.Capturing(world.stream)).capturing);
  CHECK(words.At(0).load() == 0);  // nothing has run

  const GraphRun run = Instantiate(graph);
  DestroyGraph(graph);
  for (uint32_t replay = 1; replay <= 3; ++replay) {
    words.At(3) = 0;
    LaunchGraph(run, world.stream);
    Await(words.At(0), 1);
    CHECK(words.At(3).load() == 0);
    words.At(0) = 0;
    words.At(1) = 1;
    Ok(driver.Synchronize(world.stream));
    CHECK(words.At(1).load() == 0);
    CHECK(words.At(3).load() == 0x07070707);
  }
  CHECK(gone.Rung() == 0);
  DestroyGraphRun(run);
  gone.WaitFor(1);
}

TEST_CASE("captures are told apart by number") {
  World world;
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    BeginCapture(world.stream);
    const uint64_t id = Value(world.driver.Capturing(world.stream)).id;
    CHECK(id != last);
    last = id;
    const Graph graph = EndCapture(world.stream);
    REQUIRE(graph != nullptr);
    DestroyGraph(graph);
  }
}

TEST_CASE("a capture that failed is said to have") {
  World world;
  Driver& driver = world.driver;
  BeginCapture(world.stream);
  CHECK(driver.Synchronize(world.stream).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(driver.Capturing(world.stream).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(EndCapture(world.stream) == nullptr);
  CHECK(!Value(driver.Capturing(world.stream)).capturing);
}

}  // namespace
}  // namespace shunt::gpu::testing
