#include "runtime/recorder/call_ring.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "runtime/board/records.h"
#include "runtime/core/clock.h"
#include "tests/board/calls.h"
#include "tests/board/world.h"

namespace shunt::recorder {
namespace {

struct Memory {
  explicit Memory(uint32_t size) : notes(new CallNote[size]()), ring(notes.get(), size) {}
  std::unique_ptr<CallNote[]> notes;
  CallRing ring;
};

TEST_CASE("a ring has the last calls, oldest first, as they were noted") {
  Memory memory(4);
  for (uint64_t n = 1; n <= 6; ++n) {
    memory.ring.Begin(n, 10 * n, 100 * n, 1000 * n, static_cast<int64_t>(n));
    if (n == 5) memory.ring.Move(n, 50);
    if (n != 6) memory.ring.End(n, 60, n != 4);
  }
  const std::vector<Call> calls = memory.ring.ReadAll(6, 1000);
  REQUIRE(calls.size() == 4);
  CHECK(calls[0].number == 3);
  CHECK(calls[1].state == CallState::kFailed);
  CHECK(calls[2].sequence == 50);
  CHECK(calls[2].words == 500);
  CHECK(calls[2].count == 5000);
  CHECK(calls[2].posted_ns == 5);
  CHECK(calls[2].moved_ns == 50);
  CHECK(calls[2].ended_ns == 60);
  CHECK(calls[2].state == CallState::kSucceeded);
  CHECK(calls[3].state == CallState::kOpen);
  CHECK(calls[3].ended_ns == 0);
}

TEST_CASE("what ends after its place was taken is not written over who took it") {
  Memory memory(2);
  memory.ring.Begin(1, 1, 0, 0, 1);
  memory.ring.Begin(3, 3, 0, 0, 3);
  memory.ring.End(1, 9, true);
  memory.ring.Move(1, 9);
  const std::vector<Call> calls = memory.ring.ReadAll(3, 1000);
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].sequence == 3);
  CHECK(calls[0].state == CallState::kOpen);
  CHECK(calls[0].moved_ns == 0);
}

TEST_CASE("an end without a number is that of the newest call that matches") {
  Memory memory(4);
  memory.ring.Begin(1, 7, 0, 0, 1);
  memory.ring.Begin(2, 7, 1, 0, 1);
  memory.ring.Begin(3, 8, 0, 0, 1);
  memory.ring.EndLast(3, 5, true, [](const Call& call) { return call.sequence == 7; });
  const std::vector<Call> calls = memory.ring.ReadAll(3, 1000);
  CHECK(calls[0].state == CallState::kOpen);
  CHECK(calls[1].state == CallState::kSucceeded);
  CHECK(calls[2].state == CallState::kOpen);
}

TEST_CASE("times that can't be are none") {
  Memory memory(4);
  memory.ring.Begin(1, 1, 0, 0, 2000);
  memory.ring.Begin(2, 1, 0, 0, 500);
  memory.ring.Move(2, 400);
  memory.ring.End(2, 450, true);
  memory.ring.Begin(3, 1, 0, 0, -5);
  memory.ring.Begin(4, 1, 0, 0, 500);
  memory.ring.End(4, 5000, true);
  const std::vector<Call> calls = memory.ring.ReadAll(4, 1000);
  CHECK(calls[0].posted_ns == 0);
  CHECK((calls[1].moved_ns == 0 && calls[1].ended_ns == 0));
  CHECK(calls[2].posted_ns == 0);
  CHECK(calls[3].ended_ns == 1000);
}

TEST_CASE("a hostile number of calls is neither read beyond the ring nor for ever") {
  Memory memory(4);
  memory.ring.Begin(~uint64_t{0}, 1, 0, 0, 1);
  CHECK(memory.ring.ReadAll(~uint64_t{0}, 10).size() == 1);
  CHECK(memory.ring.ReadAll(1, 10).empty());
  CHECK(CallRing().ReadAll(100, 10).empty());
}

TEST_CASE("what is written while it is read is left out, never half of it") {
  Memory memory(2);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t n = 1; !stop.load(); ++n) memory.ring.Begin(n, n, n, n, static_cast<int64_t>(n));
  });
  uint64_t read = 0, wrong = 0;
  for (int i = 0; i < 200'000; ++i) {
    for (uint64_t n = 1; n < 4; ++n) {
      const uint64_t number = memory.notes[n & 1].number.load();
      Call call;
      if (number == 0 || !memory.ring.Read(number, &call)) continue;
      ++read;
      wrong += call.sequence != number || call.words != number || call.count != number;
    }
  }
  stop = true;
  writer.join();
  CHECK(read > 0);
  CHECK(wrong == 0);
}

TEST_CASE("sizes of rings are powers of two, within their bound") {
  CHECK(RingSize(0) == 0);
  CHECK(RingSize(1) == 1);
  CHECK(RingSize(100) == 128);
  CHECK(RingSize(1 << 20) == kCallsMax);
}

TEST_CASE("members note their calls on the board, and the daemon reads them there") {
  using namespace board;
  testing::WorldOptions options;
  options.ranks = 2;
  options.calls_kept = 8;
  testing::World world(options);
  const int64_t before = NowNs();
  constexpr int kCalls = 11;
  world.Run([&](int rank) {
    float x = 1;
    for (int i = 0; i < kCalls; ++i) {
      board::Call call;
      call.spec = {OpKind::kAllReduce, DataType::kFloat32, Redop::kMax, 0, 1};
      call.in = call.out = reinterpret_cast<std::byte*>(&x);
      call.deadline_ns = testing::Soon();
      if (const auto s = world.member(rank).Run(call); !s.ok()) {
        world.Complain(std::string(s.message()));
      }
    }
    board::Call pair;
    pair.spec = {rank == 0 ? OpKind::kSend : OpKind::kRecv, DataType::kFloat32, Redop::kSum, 0, 1};
    if (rank == 0) {
      pair.in = reinterpret_cast<std::byte*>(&x);
    } else {
      pair.out = reinterpret_cast<std::byte*>(&x);
    }
    pair.peer = 1 - rank;
    pair.deadline_ns = testing::Soon();
    if (const auto s = world.member(rank).Run(pair); !s.ok()) {
      world.Complain(std::string(s.message()));
    }
  });
  CHECK(world.complaints().empty());
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<recorder::Call> calls = CallsOf(world.board(), rank, NowNs());
    REQUIRE(calls.size() == 8);
    CHECK(calls[0].number == kCalls + 1 - 7);
    for (size_t i = 0; i < calls.size(); ++i) {
      const recorder::Call& call = calls[i];
      CHECK(call.state == CallState::kSucceeded);
      CHECK(call.posted_ns >= before);
      CHECK(call.ended_ns >= call.posted_ns);
      if (i > 0) CHECK(call.posted_ns >= calls[i - 1].ended_ns);
    }
    CHECK(Text(RecordOf(calls[6])) == "all_reduce #11 float32 max count 1");
    CHECK(Text(RecordOf(calls[7])) == (rank == 0 ? "send #1 float32 count 1 to rank 1"
                                                 : "recv #1 float32 count 1 from rank 0"));
  }
  CHECK(OpenOperations(world.board(), NowNs()).empty());
}

TEST_CASE("an operation that waits says who has come and who has not") {
  using namespace board;
  testing::WorldOptions options;
  options.ranks = 3;
  options.calls_kept = 8;
  testing::World world(options);
  const auto start = [&](int rank) {
    board::Call call;
    call.spec = {OpKind::kBarrier, DataType::kInt8, Redop::kSum, 0, 0};
    call.deadline_ns = testing::Soon();
    return *world.member(rank).Start(call, false);
  };
  const auto first = start(0);
  const auto third = start(2);
  const std::vector<OpenOperation> open = OpenOperations(world.board(), NowNs());
  REQUIRE(open.size() == 1);
  CHECK(open[0].channel == 0);
  CHECK(open[0].sequence == 1);
  CHECK_FALSE(open[0].decided);
  CHECK(open[0].posted == std::vector<int>{0, 2});
  CHECK(open[0].missing == std::vector<int>{1});
  const auto second = start(1);
  absl::Status outcome;
  CHECK(world.member(1).Poll(*second, &outcome));
  // All have come: who has it open still has not looked.
  const std::vector<OpenOperation> over = OpenOperations(world.board(), NowNs());
  REQUIRE(over.size() == 1);
  CHECK(over[0].decided);
  for (const auto& [rank, op] : {std::pair(0, first), std::pair(2, third)}) {
    CHECK(world.member(rank).Poll(*op, &outcome));
    CHECK(outcome.ok());
  }
  CHECK(OpenOperations(world.board(), NowNs()).empty());
}

}  // namespace
}  // namespace shunt::recorder
