// The daemon's part: operations that it sees through, ranks for which it posts, and looks that come
// too late.
#include <catch2/catch.hpp>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/board/failure.h"
#include "runtime/core/clock.h"
#include "tests/board/calls.h"

namespace shunt::testing {
namespace {

using board::Call;
using board::Operation;
using board::Service;

Case MakeCase(OpKind kind, uint64_t count, uint64_t seed) {
  Case c;
  c.kind = kind;
  c.count = count;
  c.dtype = DataType::kUint32;
  c.seed = seed;
  return c;
}

// Waits until `done` says so, without touching any operation.
void Until(World& world, const std::function<bool()>& done) {
  const int64_t limit = Soon();
  while (!done()) {
    if (NowNs() > limit) return world.Complain("nothing happened");
    std::this_thread::yield();
  }
}

TEST_CASE("asynchronous operations on regions end while no rank looks at them") {
  const int ranks = GENERATE(1, 2, 4);
  World world({.ranks = ranks, .region_bytes = 16 << 20, .daemon = true});
  constexpr int kCalls = 12;
  std::vector<std::vector<std::unique_ptr<CaseRunner>>> runners(static_cast<size_t>(ranks));
  std::vector<std::vector<std::shared_ptr<Operation>>> operations(static_cast<size_t>(ranks));
  world.Run([&](int rank) {
    for (int i = 0; i < kCalls; ++i) {
      // Calls without payload stand between, and calls that fit the line.
      const OpKind kinds[] = {OpKind::kAllReduce, OpKind::kBarrier, OpKind::kAllToAll,
                              OpKind::kReduce};
      const uint64_t counts[] = {30000, 0, 2};
      runners[rank].push_back(std::make_unique<CaseRunner>(&world, rank, i, kCalls));
      runners[rank].back()->Prepare(
          MakeCase(kinds[i % 4], counts[i % 3], static_cast<uint64_t>(i)));
      auto op = world.member(rank).Start(runners[rank].back()->call());
      if (!op.ok()) return world.Complain(op.status().ToString());
      operations[rank].push_back(*op);
    }
  });
  REQUIRE(world.complaints() == "");
  // The last one's output, seen through the memory alone.
  Until(world, [&] {
    return world.board().channel(0).fate(kCalls).outcome.load() ==
           (uint64_t{kCalls} << 2 | board::kSucceeded);
  });
  for (auto& of_rank : runners) {
    for (auto& runner : of_rank) CHECK(runner->Check() == "");
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (auto& op : operations[rank]) {
      absl::Status outcome;
      CHECK(world.member(rank).Poll(*op, &outcome));
      CHECK(outcome.ok());
    }
  }
  CHECK(world.complaints() == "");
}

TEST_CASE("an asynchronous operation that lacks a rank ends at its deadline while no rank looks") {
  World world({.ranks = 2, .daemon = true});
  world.Run([&](int rank) {
    if (rank != 0) return;
    CaseRunner runner(&world, rank);
    runner.Prepare(MakeCase(OpKind::kAllReduce, 1000, 1));
    runner.call().deadline_ns = DeadlineAfterNs(std::chrono::milliseconds(20));
    auto op = world.member(0).Start(runner.call());
    if (!op.ok()) return world.Complain(op.status().ToString());
    Until(world, [&] { return board::HasFailed(world.board()); });
    absl::Status outcome;
    if (!world.member(0).Poll(**op, &outcome)) world.Complain("has not ended");
    if (outcome.code() != absl::StatusCode::kDeadlineExceeded) world.Complain(outcome.ToString());
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("an outcome that is none does not keep the daemon from deciding") {
  const uint64_t nonsense = GENERATE(0, 3);
  World world({.ranks = 2});
  CaseRunner runner(&world, 0);
  runner.Prepare(MakeCase(OpKind::kAllReduce, 1000, 1));
  REQUIRE(world.server()
              .PostFor(0, runner.call(), {World::RegionId(0), 0}, {World::RegionId(0), 8192}, 1)
              .ok());
  world.board().channel(0).fate(1).outcome.store(uint64_t{1} << 2 | nonsense);
  CHECK(world.server().Expire(0, 1, 0) == Service::kFailed);
  CHECK(world.server().Serve(0, 1) == Service::kFailed);
}

// Rank 0 has no Member: the daemon posts for it, as for a plain gRPC client. The others block.
TEST_CASE("ranks that the daemon posts for meet ranks that post themselves") {
  const Memory others = GENERATE(Memory::kRegion, Memory::kPlain);
  World world({.ranks = 3});
  std::map<uint32_t, uint64_t> posted;
  world.Run([&](int rank) {
    CaseRunner runner(&world, rank);
    for (int i = 0; i < 200; ++i) {
      const OpKind kinds[] = {OpKind::kAllReduce, OpKind::kSend, OpKind::kAllToAllV,
                              OpKind::kBarrier, OpKind::kGather};
      const uint64_t counts[] = {3, 0, 4000, 40000};
      Case c = MakeCase(kinds[i % 5], counts[i % 4], static_cast<uint64_t>(i));
      c.source = i % 3;
      c.destination = (i + 1) % 3;
      if (rank != 0) {
        c.memory = others;
        runner.RunAndCheck(c);
        continue;
      }
      if (!runner.Prepare(c)) continue;
      const Call& call = runner.call();
      const auto ref = [&](const std::byte* p) {
        return p == nullptr ? board::RegionRef{}
                            : board::RegionRef{World::RegionId(0),
                                               static_cast<uint64_t>(p - world.region(0))};
      };
      const uint64_t seq = ++posted[world.server().SeatOf(0, call).channel];
      const auto ticket = world.server().PostFor(0, call, ref(call.in), ref(call.out), seq);
      if (!ticket.ok()) return world.Complain(ticket.status().ToString());
      Service service = Service::kPending;
      Until(world, [&] {
        return (service = world.server().Serve(ticket->channel, ticket->seq)) != Service::kPending;
      });
      if (service != Service::kSucceeded) world.Complain(world.server().FailureStatus().ToString());
      world.server().Retire(ticket->channel, ticket->seq, 0);
      if (std::string wrong = runner.Check(); !wrong.empty()) world.Complain(std::move(wrong));
    }
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("the daemon refuses to post what lies outside the rank's region, or too many at once") {
  World world({.ranks = 2, .region_bytes = 1 << 16});
  Call call;
  call.spec = {OpKind::kAllReduce, DataType::kFloat32, Redop::kSum, 0, 1024};
  const uint64_t bytes = world.region_bytes();
  const auto post = [&](board::RegionRef in, board::RegionRef out, uint64_t seq) {
    return world.server().PostFor(0, call, in, out, seq).status().code();
  };
  CHECK(post({1, bytes - 4092}, {1, 0}, 1) == absl::StatusCode::kInvalidArgument);
  CHECK(post({1, 0}, {1, ~uint64_t{0} - 8}, 1) == absl::StatusCode::kInvalidArgument);
  CHECK(post({2, 0}, {1, 0}, 1) == absl::StatusCode::kInvalidArgument);
  CHECK(post({0, 0}, {1, 0}, 1) == absl::StatusCode::kInvalidArgument);
  CHECK(world.server().LastCall(0) == "");
  for (uint64_t seq = 1; seq <= 32; ++seq)
    CHECK(post({1, 0}, {1, 8192}, seq) == absl::StatusCode::kOk);
  CHECK(post({1, 0}, {1, 8192}, 33) == absl::StatusCode::kResourceExhausted);
  CHECK(world.server().LastCall(0) == "all_reduce #32 float32 sum count 1024");
}

TEST_CASE("a rank's send to itself through the daemon frees both ends' slots") {
  World world({.ranks = 1});
  std::memset(world.region(0), 7, 100);
  for (uint64_t seq = 1; seq <= 20; ++seq) {
    Call call;
    call.spec = {OpKind::kSend, DataType::kUint8, Redop::kSum, 0, 100};
    call.peer = 0;
    const auto sent = world.server().PostFor(0, call, {1, 0}, {}, seq);
    call.spec.kind = OpKind::kRecv;
    const auto received = world.server().PostFor(0, call, {}, {1, 1000}, seq);
    REQUIRE(sent.ok());
    REQUIRE(received.ok());
    REQUIRE(world.server().Serve(sent->channel, seq) == Service::kSucceeded);
    world.server().Retire(sent->channel, seq, 0);
  }
  CHECK(std::memcmp(world.region(0), world.region(0) + 1000, 100) == 0);
}

// A worker may be held up for longer than the ranks need to use all slots again.
TEST_CASE("a look at any operation at any time harms nobody") {
  World world({.ranks = 2});
  std::atomic<int> running{2};
  std::atomic<uint64_t> at{1};
  std::thread daemon([&] {
    uint64_t dice = 1;
    while (running > 0) {
      dice = dice * 6364136223846793005 + 1442695040888963407;
      const uint64_t now = at.load();
      std::this_thread::yield();
      const uint64_t back = (dice >> 33) % 80;
      (void)world.server().Serve(0, now > back ? now - back : now + (dice >> 50) % 3);
    }
  });
  world.Run([&](int rank) {
    CaseRunner runner(&world, rank);
    for (uint64_t i = 0; i < 3000; ++i) {
      if (rank == 0) at = i + 1;
      // Short and long, on and off the board: the slots' posts change all the time.
      const uint64_t counts[] = {2, 20, 4096, 5000, 9000};
      Case c =
          MakeCase(i % 2 == 0 ? OpKind::kAllReduce : OpKind::kBroadcast, counts[i * i % 5], i % 7);
      if (i % 11 == 3) c.memory = Memory::kPlain;
      if (i % 64 < 60) {
        runner.Prepare(MakeCase(OpKind::kBarrier, 0, 0));
        if (!world.member(rank).Run(runner.call()).ok()) world.Complain("barrier");
      } else {
        runner.RunAndCheck(c);
      }
    }
    running.fetch_sub(1);
  });
  daemon.join();
  CHECK(world.complaints() == "");
  CHECK_FALSE(board::HasFailed(world.board()));
}

}  // namespace
}  // namespace shunt::testing
