// How operations end that cannot succeed: who is named, what every rank is told, and that all are
// told the same.
#include "runtime/board/failure.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/board/arrival.h"
#include "runtime/core/clock.h"
#include "tests/board/calls.h"

namespace shunt::testing {
namespace {

using board::Call;
using board::Operation;
using Catch::Matchers::Contains;

Case AllReduce(uint64_t count, Memory memory = Memory::kRegion) {
  Case c;
  c.count = count;
  c.memory = memory;
  return c;
}

// One call of each rank, with what it returned.
std::vector<absl::Status> CallAll(World& world,
                                  const std::function<void(int rank, CaseRunner& runner)>& prepare,
                                  const std::vector<bool>& takes_part = {}) {
  std::vector<absl::Status> outcomes(static_cast<size_t>(world.ranks()));
  world.Run([&](int rank) {
    if (!takes_part.empty() && !takes_part[rank]) return;
    CaseRunner runner(&world, rank);
    prepare(rank, runner);
    outcomes[rank] = world.member(rank).Run(runner.call());
  });
  return outcomes;
}

TEST_CASE(
    "a reason that is no UTF-8 text is told with a question mark for each byte that is wrong") {
  const auto [written, told] = GENERATE(table<std::string, std::string>({
      {"Verlust \xc3\xbc, \xe2\x88\x9e, \xf0\x9f\x94\xa5",
       "Verlust \xc3\xbc, \xe2\x88\x9e, \xf0\x9f\x94\xa5"},
      {"line\nbell\x07", "line?bell?"},
      {"cut \xe2\x88", "cut ??"},
      {"alone \x80", "alone ?"},
      {"overlong \xc0\xaf \xe0\x80\xaf", "overlong ?? ???"},
      {"surrogate \xed\xa0\x80", "surrogate ???"},
      {"too far \xf4\x90\x80\x80", "too far ????"},
  }));
  World world({.ranks = 1});
  world.member(0).Abort(written);
  const absl::Status told_status = board::FailureStatus(world.board());
  CHECK_THAT(std::string(told_status.message()), Catch::Matchers::EndsWith(": " + told));
}

TEST_CASE(
    "a rank that never calls is named with its last call, to all who wait and to those who come "
    "later") {
  const uint64_t count = GENERATE(2, 100000);
  const Memory memory = GENERATE(Memory::kRegion, Memory::kPlain);
  World world({.ranks = 3});
  world.Run([&](int rank) { CaseRunner(&world, rank).RunAndCheck(AllReduce(7)); });
  const auto prepare = [&](int, CaseRunner& runner) {
    runner.Prepare(AllReduce(count, memory));
    runner.call().deadline_ns = DeadlineAfterNs(std::chrono::milliseconds(30));
  };
  const std::vector<absl::Status> outcomes = CallAll(world, prepare, {true, false, true});
  for (const int rank : {0, 2}) {
    CHECK(outcomes[rank].code() == absl::StatusCode::kDeadlineExceeded);
    CHECK_THAT(
        std::string(outcomes[rank].message()),
        Contains("rank 1 (pid 1001), whose last call was all_reduce #1 float32 sum count 7"));
    CHECK_THAT(std::string(outcomes[rank].message()),
               Contains(absl::StrCat("all_reduce #2 float32 sum count ", count)));
  }
  CHECK(outcomes[0].message() == outcomes[2].message());
  for (int rank = 0; rank < 3; ++rank) {
    CaseRunner runner(&world, rank);
    runner.Prepare(AllReduce(count));
    const absl::Status later = world.member(rank).Run(runner.call());
    // Whoever calls a moment later handles it like those who waited.
    CHECK(later.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK_THAT(std::string(later.message()), Contains(std::string(outcomes[0].message())));
  }
}

TEST_CASE("words that make no sense on the board end a call at its deadline at the latest") {
  const bool died = GENERATE(false, true);
  const auto damage = GENERATE(0, 1, 2, 3);
  World world({.ranks = 2});
  const board::Channel channel = world.board().channel(0);
  const uint64_t seq = 1;
  switch (damage) {
    case 0:  // a post of an operation that is far ahead
      channel.post(seq, 1).word.store(board::PostedWord(seq + 8 * channel.slots()));
      break;
    case 1:
      channel.fate(seq).outcome.store(seq << 2 | 3);
      break;
    case 2:
      channel.fate(seq).outcome.store(seq << 2);
      break;
    default:
      channel.post(seq, 1).word.store(seq << 2 | 3);
  }
  if (died) board::RecordFailure(world.board(), board::FailureReason::kRankDied, 1, "rank 1 died");
  CaseRunner runner(&world, 0);
  runner.Prepare(AllReduce(100000));
  runner.call().deadline_ns = DeadlineAfterNs(std::chrono::milliseconds(30));
  CHECK_FALSE(world.member(0).Run(runner.call()).ok());
}

TEST_CASE("a rank that has never called is named") {
  World world({.ranks = 2});
  const auto prepare = [&](int, CaseRunner& runner) {
    runner.Prepare(AllReduce(2));
    runner.call().deadline_ns = 0;
  };
  const std::vector<absl::Status> outcomes = CallAll(world, prepare, {true, false});
  CHECK_THAT(std::string(outcomes[0].message()), Contains("rank 1 (pid 1001), which never called"));
}

TEST_CASE("calls that differ end on every rank with both calls shown") {
  const auto change = GENERATE(0, 1, 2, 3, 4, 5, 6);
  const bool async = GENERATE(false, true);
  World world({.ranks = 3, .daemon = async});
  Case base;
  base.kind = OpKind::kReduce;
  base.count = 4096;  // 16 KiB: on the board
  Case other = base;
  switch (change) {
    case 0:
      other.kind = OpKind::kBroadcast;
      break;
    case 1:
      other.dtype = DataType::kInt32;
      break;
    case 2:
      other.redop = Redop::kMax;
      break;
    case 3:
      other.count = 4097;  // beyond it
      break;
    case 4:
      other.root = 1;
      break;
    case 5:
      other.count = 1;  // in the line
      break;
    case 6:
      other.kind = OpKind::kAllToAllV;
      other.memory = Memory::kPlain;
      break;
  }
  const int odd = change % 3;
  std::vector<absl::Status> outcomes(3);
  world.Run([&](int rank) {
    CaseRunner runner(&world, rank);
    runner.Prepare(rank == odd ? other : base);
    if (!async) {
      outcomes[rank] = world.member(rank).Run(runner.call());
      return;
    }
    auto op = world.member(rank).Start(runner.call());
    if (!op.ok()) {
      outcomes[rank] = op.status();
    } else if (!world.member(rank).Wait(**op, Soon(), &outcomes[rank])) {
      outcomes[rank] = absl::InternalError("hangs");
    }
  });
  for (int rank = 0; rank < 3; ++rank) {
    INFO("change " << change << " rank " << rank << ": " << outcomes[rank]);
    REQUIRE(outcomes[rank].code() == absl::StatusCode::kFailedPrecondition);
    const std::string words(outcomes[rank].message());
    CHECK_THAT(words, Contains("do not match"));
    CHECK_THAT(words, Contains(absl::StrCat("rank ", odd, " (pid ", 1000 + odd, ") called ")));
    CHECK_THAT(words, Contains("reduce #1 float32 sum count 4096 root 0"));
  }
}

TEST_CASE("a send and a receive of different sizes or types end on both ranks") {
  const bool size = GENERATE(true, false);
  World world({.ranks = 2});
  const std::vector<absl::Status> outcomes = CallAll(world, [&](int rank, CaseRunner& runner) {
    Case c = AllReduce(512);  // 2 KiB: on the board
    c.kind = OpKind::kSend;
    if (rank == 1 && size) c.count = 513;
    if (rank == 1 && !size) c.dtype = DataType::kInt32;
    runner.Prepare(c);
  });
  for (const absl::Status& s : outcomes) {
    CHECK(s.code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(std::string(s.message()), Contains("send #1 float32 count 512 to rank 1"));
    CHECK_THAT(std::string(s.message()), Contains("recv #1 "));
  }
}

TEST_CASE("counts of an all_to_all_v that differ name both ranks") {
  World world({.ranks = 3});
  uint64_t counts[3] = {4, 4, 4}, displs[3] = {0, 4, 8}, wrong[3] = {4, 4, 5};
  const std::vector<absl::Status> outcomes = CallAll(world, [&](int rank, CaseRunner& runner) {
    Case c = AllReduce(12);
    runner.Prepare(c);
    runner.call().spec.kind = OpKind::kAllToAllV;
    runner.call().send_counts = runner.call().recv_counts = counts;
    runner.call().send_displs = runner.call().recv_displs = displs;
    if (rank == 1) runner.call().recv_counts = wrong;
  });
  for (const absl::Status& s : outcomes) {
    CHECK(s.code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(
        std::string(s.message()),
        Contains("rank 2 (pid 1002) sends 4 elements to rank 1 (pid 1001), which expects 5"));
  }
}

TEST_CASE("an abort ends what is in flight, on every rank, with the reason") {
  const bool daemon = GENERATE(false, true);
  const Memory memory = GENERATE(Memory::kRegion, Memory::kPlain);
  World world({.ranks = 3, .daemon = daemon});
  std::vector<absl::Status> outcomes(3);
  world.Run([&](int rank) {
    if (rank == 2) {
      while (world.board().last_call(0).sequence.load() == 0 ||
             world.board().last_call(1).sequence.load() == 0) {
        std::this_thread::yield();
      }
      world.member(2).Abort("the loss is a NaN");
      outcomes[2] = world.member(2).Run(
          Call{.spec = {OpKind::kBarrier, {}, {}, 0, 0}, .deadline_ns = Soon()});
      return;
    }
    CaseRunner runner(&world, rank);
    runner.Prepare(AllReduce(10000, memory));
    if (rank == 0) {
      outcomes[0] = world.member(0).Run(runner.call());
      return;
    }
    auto op = world.member(1).Start(runner.call());
    if (!op.ok()) {
      outcomes[1] = op.status();
    } else if (!world.member(1).Wait(**op, Soon(), &outcomes[1])) {
      outcomes[1] = absl::InternalError("hangs");
    }
  });
  CHECK(outcomes[0].code() == absl::StatusCode::kAborted);
  CHECK(outcomes[1].code() == absl::StatusCode::kAborted);
  CHECK(outcomes[2].code() == absl::StatusCode::kAborted);
  for (const absl::Status& s : outcomes) {
    CHECK_THAT(std::string(s.message()),
               Contains("aborted by rank 2 (pid 1002): the loss is a NaN"));
  }
}

TEST_CASE("a rank's death wakes those who sleep, and names it") {
  World world({.ranks = 3, .member = {.spin_ns = 0, .yield_ns = 0}});
  std::vector<absl::Status> outcomes(3);
  world.Run([&](int rank) {
    if (rank == 2) {
      while (world.board().bell(0).sleeping.load() == 0 ||
             world.board().bell(1).sleeping.load() == 0) {
        std::this_thread::yield();
      }
      world.server().RankGone(2, /*died=*/true);
      return;
    }
    CaseRunner runner(&world, rank);
    runner.Prepare(AllReduce(10));
    outcomes[rank] = world.member(rank).Run(runner.call());
  });
  for (const int rank : {0, 1}) {
    CHECK(outcomes[rank].code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(outcomes[rank].message()), Contains("rank 2 (pid 1002) died"));
    CHECK_THAT(std::string(outcomes[rank].message()), Contains("never called"));
  }
}

TEST_CASE("a rank that left ends what waits for it and nothing else") {
  World world({.ranks = 3});
  world.server().RankGone(2, /*died=*/false);
  world.Run([&](int rank) {
    Case c = AllReduce(50000);
    c.kind = OpKind::kSend;
    if (rank != 2) CaseRunner(&world, rank).RunAndCheck(c);
  });
  CHECK(world.complaints() == "");
  const auto prepare = [&](int, CaseRunner& runner) { runner.Prepare(AllReduce(5)); };
  const std::vector<absl::Status> outcomes = CallAll(world, prepare, {true, true, false});
  for (const int rank : {0, 1}) {
    CHECK(outcomes[rank].code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(outcomes[rank].message()), Contains("rank 2 (pid 1002) has left"));
  }
}

TEST_CASE("memory that is not there ends the operation and names the rank") {
  World world({.ranks = 2});
  // Rank 1 posts a region that nobody can resolve.
  class Elsewhere : public FakeHost {
   public:
    using FakeHost::FakeHost;
    board::RegionRef Find(const void*, size_t) override { return {77, 12}; }
  } host(&world, 1);
  board::Member liar(world.board(), 1, &host, {});
  const std::vector<absl::Status> outcomes = [&] {
    std::vector<absl::Status> got(2);
    world.Run([&](int rank) {
      CaseRunner runner(&world, rank);
      runner.Prepare(AllReduce(50000));
      got[rank] = rank == 1 ? liar.Run(runner.call()) : world.member(0).Run(runner.call());
    });
    return got;
  }();
  for (const absl::Status& s : outcomes) {
    CHECK(s.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(s.message()),
               Contains("rank 1 (pid 1001) gave no valid input: region 77, offset 12"));
  }
}

TEST_CASE("without a daemon the waiting end") {
  World world({.ranks = 2, .member = {.spin_ns = 0, .yield_ns = 0}});
  world.host(0).daemon_gone = true;
  const auto prepare = [&](int, CaseRunner& runner) { runner.Prepare(AllReduce(5)); };
  const std::vector<absl::Status> outcomes = CallAll(world, prepare, {true, false});
  CHECK(outcomes[0].code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(outcomes[0].message()), Contains("the daemon is gone"));
}

TEST_CASE("a call whose reservation on the ring fails is as if it had not been made") {
  World world({.ranks = 2});
  world.Run([&](int rank) {
    CaseRunner runner(&world, rank);
    if (rank == 0) {
      world.host(0).refuse = [] { return absl::ResourceExhaustedError("full"); };
      runner.Prepare(AllReduce(9000));
      if (world.member(0).Start(runner.call()).status().code() !=
          absl::StatusCode::kResourceExhausted) {
        world.Complain("not refused");
      }
      world.host(0).refuse = nullptr;
    }
    runner.RunAndCheck(AllReduce(9000));
  });
  CHECK(world.complaints() == "");
}

// What the deadline and the last rank race for, in every mix of who waits and where the payload
// goes.
TEST_CASE("a deadline that passes as the last rank comes has one outcome on all ranks") {
  struct Mode {
    uint64_t count;
    Memory memory;
    bool async;   // rank 0 only
    bool daemon;  // expires it
  };
  const Mode mode =
      GENERATE(Mode{2, Memory::kRegion, false, false}, Mode{8, Memory::kPlain, true, false},
               Mode{5000, Memory::kRegion, false, false}, Mode{5000, Memory::kPlain, false, false},
               Mode{5000, Memory::kRegion, true, true}, Mode{0, Memory::kRegion, true, true});
  int succeeded = 0, failed = 0;
  for (int round = 0; round < 300; ++round) {
    World world({.ranks = 3,
                 .region_bytes = 1 << 17,
                 .member = {.spin_ns = 0, .yield_ns = 20'000},
                 .daemon = mode.daemon});
    std::vector<absl::Status> outcomes(3);
    std::atomic<int> ready{0};
    const int64_t moment = NowNs() + 400'000;
    world.Run([&](int rank) {
      CaseRunner runner(&world, rank);
      runner.Prepare(AllReduce(mode.count, mode.memory));
      const int64_t offset = (round % 50 - 25) * 2'000;
      if (rank == 2) {
        ready.fetch_add(1);
        while (NowNs() < moment + offset) {
        }
        runner.call().deadline_ns = moment + 1'000'000'000;
      } else {
        runner.call().deadline_ns = moment + rank * 5'000;
      }
      if (rank != 0 || !mode.async) {
        outcomes[rank] = world.member(rank).Run(runner.call());
        return;
      }
      auto op = world.member(rank).Start(runner.call());
      if (!op.ok()) {
        outcomes[rank] = op.status();
      } else {
        world.member(rank).Wait(**op, Soon(), &outcomes[rank]);
      }
    });
    const bool ok = outcomes[0].ok();
    (ok ? succeeded : failed) += 1;
    INFO("round " << round << ": " << outcomes[0] << " | " << outcomes[1] << " | " << outcomes[2]);
    REQUIRE(outcomes[1].ok() == ok);
    REQUIRE(outcomes[2].ok() == ok);
    // A communicator on which all succeeded has no failure, not even one that nobody was told.
    const bool dead = board::HasFailed(world.board());
    REQUIRE(dead == !ok);
  }
  CHECK(succeeded + failed == 300);
}

}  // namespace
}  // namespace shunt::testing
