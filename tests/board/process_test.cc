// Ranks as processes: what threads of one process cannot show, death and standstill in the middle
// of a pass.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/board/failure.h"
#include "runtime/core/clock.h"
#include "tests/board/calls.h"

namespace shunt::testing {
namespace {

using board::Call;

struct Report {
  std::atomic<int> code;
  char text[1000];
};

// A child for each of the ranks from `first` on. The body's status is what it reports.
class Processes {
 public:
  Processes(World& world, int first, const std::function<absl::Status(int rank)>& body)
      : reports_(sizeof(Report) * static_cast<size_t>(world.ranks())) {
    for (int rank = first; rank < world.ranks(); ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        const absl::Status s = body(rank);
        Report& r = report(rank);
        std::strncpy(r.text, std::string(s.message()).c_str(), sizeof(r.text) - 1);
        r.code = static_cast<int>(s.code());
        ::_exit(s.ok() ? 0 : 1);
      }
      pids_[rank] = pid;
      world.board().row(rank).pid.store(pid);
    }
  }
  ~Processes() {
    for (const auto& [rank, pid] : pids_) ::kill(pid, SIGKILL);
    for (const auto& [rank, pid] : pids_) ::waitpid(pid, nullptr, 0);
  }

  pid_t pid(int rank) { return pids_[rank]; }
  void Kill(int rank) {
    ::kill(pids_[rank], SIGKILL);
    ::waitpid(pids_[rank], nullptr, 0);
    pids_.erase(rank);
  }
  // Stops the rank; true if it stands still in the middle of the operation's pass.
  bool StopInside(World& world, int rank, uint64_t seq) {
    std::atomic<uint64_t>& working = world.board().channel(0).progress(seq, rank).working;
    const int64_t limit = Soon();
    while (NowNs() < limit) {
      if (working.load() != seq) {
        std::this_thread::yield();
        continue;
      }
      ::kill(pids_[rank], SIGSTOP);
      int status = 0;
      ::waitpid(pids_[rank], &status, WUNTRACED);
      if (working.load() == seq) return true;
      ::kill(pids_[rank], SIGCONT);
    }
    return false;
  }
  absl::Status Join(int rank) {
    ::waitpid(pids_[rank], nullptr, 0);
    pids_.erase(rank);
    return {static_cast<absl::StatusCode>(report(rank).code.load()), report(rank).text};
  }

 private:
  Report& report(int rank) { return reinterpret_cast<Report*>(reports_.data())[rank]; }

  SharedMemory reports_;
  std::map<int, pid_t> pids_;
};

Case LongCase(Memory memory, uint64_t seed) {
  Case c;
  c.dtype = DataType::kUint32;
  c.count = 3 << 20;
  c.memory = memory;
  c.seed = seed;
  return c;
}

// The same call for ever, long enough to be caught inside.
absl::Status RunFor(World& world, int rank, Memory memory, int64_t deadline_ns, int times) {
  CaseRunner runner(&world, rank);
  runner.Prepare(LongCase(memory, 1));
  runner.call().deadline_ns = deadline_ns;
  for (int i = 0; i < times; ++i) {
    if (absl::Status s = world.member(rank).Run(runner.call()); !s.ok()) return s;
  }
  return absl::OkStatus();
}

TEST_CASE("processes run every kind of collective, blocking and asynchronous") {
  const bool daemon = GENERATE(false, true);
  World world({.ranks = 3, .daemon = daemon});
  Processes ranks(world, 0, [&](int rank) {
    std::vector<std::unique_ptr<CaseRunner>> runners;
    for (int s = 0; s < 4; ++s) runners.push_back(std::make_unique<CaseRunner>(&world, rank, s, 4));
    uint64_t seed = 0;
    for (const Memory memory : {Memory::kRegion, Memory::kPlain, Memory::kMixed}) {
      for (const uint64_t count : {0, 2, 4096, 30000}) {
        std::vector<std::shared_ptr<board::Operation>> operations;
        for (int i = 0; i < 4; ++i) {
          Case c;
          const OpKind kinds[] = {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter,
                                  OpKind::kAllToAll};
          c.kind = kinds[i];
          c.dtype = DataType::kUint32;
          c.count = count;
          c.memory = memory;
          c.seed = ++seed;
          runners[i]->RunAndCheck(c);
          c.seed = ++seed;
          runners[i]->Prepare(c);
          auto op = world.member(rank).Start(runners[i]->call());
          if (!op.ok()) return op.status();
          operations.push_back(*op);
        }
        for (int i = 0; i < 4; ++i) {
          absl::Status outcome;
          world.member(rank).Wait(*operations[i], Soon(), &outcome);
          if (!outcome.ok()) return outcome;
          if (std::string wrong = runners[i]->Check(); !wrong.empty())
            return absl::InternalError(wrong);
        }
      }
    }
    return absl::InternalError(world.complaints());
  });
  if (daemon) world.StartDaemon();
  for (int rank = 0; rank < 3; ++rank) CHECK(ranks.Join(rank).message() == "");
}

TEST_CASE("a rank killed in the middle of a pass ends the others' call and is named") {
  const Memory memory = GENERATE(Memory::kRegion, Memory::kPlain);
  World world({.ranks = 3, .region_bytes = 32 << 20});
  Processes ranks(world, 0, [&](int rank) { return RunFor(world, rank, memory, Soon(), 1 << 20); });
  const int64_t limit = Soon();
  while (world.board().last_call(2).sequence.load() < 3 && NowNs() < limit)
    std::this_thread::yield();
  const std::string name = absl::StrCat("rank 2 (pid ", ranks.pid(2), ") died");
  ranks.Kill(2);
  const int64_t told = NowNs();
  world.server().RankGone(2, /*died=*/true);
  for (const int rank : {0, 1}) {
    const absl::Status s = ranks.Join(rank);
    CHECK(s.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(s.message()), Catch::Matchers::Contains(name));
  }
  CHECK(NowNs() - told < 2'000'000'000);
}

TEST_CASE("a rank stopped in the middle of a pass is named at the deadline") {
  World world({.ranks = 2, .region_bytes = 32 << 20});
  CaseRunner waiter(&world, 0);
  waiter.Prepare(LongCase(Memory::kRegion, 1));
  Processes ranks(world, 1,
                  [&](int rank) { return RunFor(world, rank, Memory::kRegion, Soon(), 1); });
  // Rank 0 posts, and works no more than Poll does.
  auto op = world.member(0).Start(waiter.call());
  REQUIRE(op.ok());
  REQUIRE(ranks.StopInside(world, 1, 1));
  waiter.Prepare(LongCase(Memory::kRegion, 1));
  absl::Status outcome;
  REQUIRE_FALSE(
      world.member(0).Wait(**op, DeadlineAfterNs(std::chrono::milliseconds(30)), &outcome));
  REQUIRE(world.server().Expire(0, 1, 0) == board::Service::kFailed);
  REQUIRE(world.member(0).Wait(**op, Soon(), &outcome));
  CHECK(outcome.code() == absl::StatusCode::kDeadlineExceeded);
  // It finds out as soon as it goes on.
  ::kill(ranks.pid(1), SIGCONT);
  CHECK(ranks.Join(1).message() == outcome.message());
}

TEST_CASE("a blocked rank names the one that holds a part of the pass") {
  World world({.ranks = 2, .region_bytes = 32 << 20});
  Processes ranks(world, 1,
                  [&](int rank) { return RunFor(world, rank, Memory::kRegion, Soon(), 1); });
  CaseRunner waiter(&world, 0);
  waiter.Prepare(LongCase(Memory::kRegion, 1));
  waiter.call().deadline_ns = DeadlineAfterNs(std::chrono::milliseconds(300));
  auto op = world.member(0).Start(waiter.call());
  REQUIRE(op.ok());
  REQUIRE(ranks.StopInside(world, 1, 1));
  absl::Status outcome;
  REQUIRE(world.member(0).Wait(**op, Soon(), &outcome));
  CHECK(outcome.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(outcome.message()),
             Catch::Matchers::Contains(
                 absl::StrCat("rank 1 (pid ", ranks.pid(1), ") holds a part of the work")));
}

}  // namespace
}  // namespace shunt::testing
