// Boards of communicators with GPU memory: the daemon alone moves and decides, whatever the
// buffers.
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/board/failure.h"
#include "runtime/core/clock.h"
#include "tests/board/calls.h"

namespace shunt::testing {
namespace {

using board::Gathered;
using board::Operation;
using board::Service;

Case MakeCase(OpKind kind, uint64_t count) {
  Case c;
  c.kind = kind;
  c.count = count;
  c.dtype = DataType::kUint32;
  return c;
}

std::shared_ptr<Operation> Start(World& world, int rank, const board::Call& call) {
  auto started = world.member(rank).Start(call);
  REQUIRE(started.ok());
  return *started;
}

TEST_CASE("on a device board nobody but the daemon moves an operation, however small") {
  const uint64_t count = GENERATE(2, 5000);
  World world({.ranks = 2, .device_board = true});
  std::vector<std::unique_ptr<CaseRunner>> runners;
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 2; ++rank) {
    runners.push_back(std::make_unique<CaseRunner>(&world, rank));
    runners.back()->Prepare(MakeCase(OpKind::kAllReduce, count));
    operations.push_back(Start(world, rank, runners.back()->call()));
  }
  absl::Status outcome;
  for (int rank = 0; rank < 2; ++rank) CHECK(!world.member(rank).Poll(*operations[rank], &outcome));
  CHECK(world.server().Serve(0, 1) == Service::kPending);

  Gathered gathered;
  REQUIRE(world.server().Gather(0, 1, &gathered) == Service::kSucceeded);
  REQUIRE(gathered.ranks.size() == 2);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(gathered.ranks[rank].in == runners[rank]->call().in);
    CHECK(gathered.ranks[rank].out == runners[rank]->call().out);
    CHECK((gathered.ranks[rank].flags & board::kServed) != 0);
  }
  CHECK(!world.member(0).Poll(*operations[0], &outcome));
  world.server().Finish(0, 1);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(world.member(rank).Poll(*operations[rank], &outcome));
    CHECK(outcome.ok());
  }
}

TEST_CASE("on a device board a pair's two ends are the daemon's too") {
  World world({.ranks = 3, .device_board = true});
  Case c = MakeCase(OpKind::kSend, 100);
  c.source = 2;
  c.destination = 1;
  CaseRunner source(&world, 2), destination(&world, 1);
  REQUIRE(source.Prepare(c));
  REQUIRE(destination.Prepare(c));
  const auto sends = Start(world, 2, source.call());
  const auto receives = Start(world, 1, destination.call());
  uint32_t channel;
  uint64_t seq;
  REQUIRE(board::Member::ServedBy(*sends, &channel, &seq));
  CHECK(world.board().Remote(channel));
  Gathered gathered;
  REQUIRE(world.server().Gather(channel, seq, &gathered) == Service::kSucceeded);
  REQUIRE(gathered.ranks.size() == 2);
  CHECK(gathered.ranks[0].in == source.call().in);
  CHECK(gathered.ranks[0].out == nullptr);
  CHECK(gathered.ranks[1].in == nullptr);
  CHECK(gathered.ranks[1].out == destination.call().out);
  std::memcpy(gathered.ranks[1].out, gathered.ranks[0].in, 100 * sizeof(uint32_t));
  world.server().Finish(channel, seq);
  absl::Status outcome;
  CHECK(world.member(2).Poll(*sends, &outcome));
  CHECK(world.member(1).Poll(*receives, &outcome));
  CHECK(outcome.ok());
  CHECK(destination.Check() == "");
}

TEST_CASE("on a device board memory outside regions is copied to where a GPU reaches it") {
  World world({.ranks = 1, .device_board = true});
  Case c = MakeCase(OpKind::kAllReduce, 3);
  c.memory = Memory::kPlain;
  CaseRunner runner(&world, 0);
  runner.Prepare(c);
  const auto op = Start(world, 0, runner.call());
  Gathered gathered;
  REQUIRE(world.server().Gather(0, 1, &gathered) == Service::kSucceeded);
  CHECK(gathered.ranks[0].in != runner.call().in);
  CHECK(std::memcmp(gathered.ranks[0].in, runner.call().in, 12) == 0);
  std::memcpy(gathered.ranks[0].out, gathered.ranks[0].in, 12);
  world.server().Finish(0, 1);
  absl::Status outcome;
  CHECK(world.member(0).Poll(*op, &outcome));
  CHECK(runner.Check() == "");
}

// The daemon would take the slot's address, which is its own, for the GPU's.
TEST_CASE("a post that names the board's slots is refused on a device board") {
  World world({.ranks = 1, .device_board = true});
  CaseRunner runner(&world, 0);
  runner.Prepare(MakeCase(OpKind::kAllReduce, 3));
  const auto op = Start(world, 0, runner.call());
  world.board().channel(0).post(1, 0).body.in_place_kind =
      static_cast<uint8_t>(board::Place::kSlot);
  Gathered gathered;
  CHECK(world.server().Gather(0, 1, &gathered) == Service::kFailed);
  CHECK(world.server().FailureStatus().code() == absl::StatusCode::kInvalidArgument);
  absl::Status outcome;
  CHECK(world.member(0).Poll(*op, &outcome));
}

TEST_CASE("a rank may be 256 collectives ahead on a device board") {
  World world({.ranks = 2, .device_board = true});
  constexpr int kCalls = 256;
  CaseRunner runner(&world, 0);
  runner.Prepare(MakeCase(OpKind::kAllReduce, 8));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int i = 0; i < kCalls; ++i) operations.push_back(Start(world, 0, runner.call()));
  runner.call().deadline_ns = NowNs();
  const auto one_more = world.member(0).Start(runner.call());
  CHECK(one_more.status().code() == absl::StatusCode::kResourceExhausted);
  world.server().RankGone(1, /*died=*/true);
  absl::Status outcome;
  for (const auto& op : operations) {
    CHECK(world.member(0).Poll(*op, &outcome));
    CHECK(outcome.code() == absl::StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace shunt::testing
