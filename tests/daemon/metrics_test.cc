// What the metrics are made of: buckets, rates, names, loops, and what ranks count on a board.
#include <algorithm>
#include <catch2/catch.hpp>
#include <future>
#include <thread>
#include <vector>

#include "daemon/metrics/loops.h"
#include "daemon/metrics/names.h"
#include "daemon/metrics/rates.h"
#include "daemon/probe.h"
#include "runtime/board/tally.h"
#include "runtime/core/clock.h"
#include "runtime/core/counters.h"
#include "runtime/transport/link_tally.h"

namespace shunt::daemon {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// A board's memory, of ranks on one node.
class BoardMemory {
 public:
  explicit BoardMemory(int ranks)
      : bytes_(board::Board::BytesFor(ranks) + 4096),
        board(reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(bytes_.data()) + 4095) &
                                           ~uintptr_t{4095}),
              ranks) {}

 private:
  std::vector<std::byte> bytes_;

 public:
  const board::Board board;
};

TEST_CASE("a duration is in the first bucket whose bound it does not exceed") {
  const auto bucket = [](int64_t ns) {
    Durations durations;
    durations.Add(ns);
    const Durations::Snapshot read = durations.Read();
    CHECK(read.count == 1);
    CHECK(read.sum_ns == static_cast<uint64_t>(std::max<int64_t>(ns, 0)));
    const auto at = std::find(read.counts.begin(), read.counts.end(), 1u);
    return static_cast<int>(at - read.counts.begin());
  };
  CHECK(bucket(-5) == 0);
  CHECK(bucket(0) == 0);
  for (int i = 0; i < Durations::kBounds; ++i) {
    INFO(i);
    CHECK(bucket(Durations::BoundNs(i)) == i);
    CHECK(bucket(Durations::BoundNs(i) + 1) == i + 1);
  }
  CHECK(bucket(INT64_MAX) == Durations::kBounds);
}

TEST_CASE("counts of many threads are all there") {
  Count count;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&count] {
      for (int i = 0; i < 10'000; ++i) count.Add(3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(count.value() == 120'000);
}

TEST_CASE("a rate is of the time since the last look that a second had passed before") {
  metrics::Rates rates(100 * kSecond);
  CHECK(rates.Of("a", 500, 100 * kSecond + kSecond / 2) == 0);  // too soon
  CHECK(rates.Of("a", 500, 102 * kSecond) == 250);
  CHECK(rates.Of("a", 9999, 102 * kSecond + kSecond / 2) == 250);  // another who asks
  CHECK(rates.Of("a", 1500, 104 * kSecond) == 500);
  CHECK(rates.Of("b", 400, 104 * kSecond) == 100);
  CHECK(rates.Of("a", 1500, 105 * kSecond) == 0);
}

TEST_CASE("beyond so many at a time names share one") {
  metrics::CappedNames names(2);
  CHECK(names.Of("x") == "x");
  CHECK(names.Of("y\n") == "y?");
  CHECK(names.Of("z") == "other");
  CHECK(names.Of("x") == "x");
  names.Retain({"y\n", "z"});
  CHECK(names.Of("z") == "z");
  CHECK(names.Of("x") == "other");
}

TEST_CASE("tallies of links are kept by name, and beyond so many in one") {
  transport::LinkTallies tallies;
  transport::LinkTally* const a = tallies.Of("a");
  a->Sent(transport::Traffic::kBulk, 10);
  CHECK(tallies.Of("a") == a);
  for (size_t i = 0; i < transport::LinkTallies::kNamesMax; ++i) tallies.Of(std::to_string(i));
  CHECK(tallies.List().size() == transport::LinkTallies::kNamesMax + 1);
  CHECK(tallies.Of("late")->name == "other");
  CHECK(tallies.Of("later") == tallies.Of("late"));
  CHECK(tallies.Of("a")->sent[1].value() == 10);
}

TEST_CASE("a loop that does not answer lags, and nobody waits for it") {
  metrics::Loops loops;
  std::vector<std::function<void()>> stuck;
  int visits = 0;
  loops.Add(
      "quick", [](std::function<void()> f) { f(); }, [&visits] { ++visits; });
  loops.Add("stuck", [&stuck](std::function<void()> f) { stuck.push_back(std::move(f)); });
  loops.Ask();
  loops.Await(NowNs());
  CHECK(visits == 1);
  const double first = loops.Read()[1].seconds;
  CHECK(first > 0);
  loops.Ask();
  CHECK(stuck.size() == 1);  // one question at a time
  CHECK(loops.Read()[1].seconds > first);
  stuck[0]();
  const double answered = loops.Read()[1].seconds;
  CHECK(answered >= first);
  CHECK(loops.Read()[1].seconds == answered);
  loops.Ask();
  CHECK(stuck.size() == 2);
}

TEST_CASE("who comes last is found from when ranks came") {
  const BoardMemory memory(3);
  const board::Board& board = memory.board;
  CHECK(!board::LatenessOf(board, kSecond).has_value());
  for (uint64_t seq = 1; seq <= 20; ++seq) {
    const int64_t at = static_cast<int64_t>(seq) * 1000;
    board::NoteArrival(board, 0, seq, at);
    board::NoteArrival(board, 1, seq, at + 300);
    board::NoteArrival(board, 2, seq, at + 100);
  }
  const auto lateness = board::LatenessOf(board, 20'400);
  REQUIRE(lateness.has_value());
  CHECK(lateness->rank == 1);
  CHECK(!lateness->missing);
  CHECK(lateness->skew_seconds == Approx(300e-9));
}

TEST_CASE("a rank that has not come is the late one as long as others wait for it") {
  const BoardMemory memory(2);
  const board::Board& board = memory.board;
  board::NoteArrival(board, 0, 1, 1000);
  board::NoteArrival(board, 1, 1, 1010);
  board::NoteArrival(board, 0, 2, 2000);
  CHECK(board::LatenessOf(board, 2005)->rank == 1);
  const auto later = board::LatenessOf(board, 2000 + 5 * kSecond);
  CHECK(later->missing);
  CHECK(later->rank == 1);
  CHECK(later->skew_seconds == Approx(5));
  // One that is ahead by more calls than times are kept.
  for (uint64_t seq = 3; seq <= 30; ++seq) {
    board::NoteArrival(board, 0, seq, static_cast<int64_t>(seq) * 1000);
  }
  const auto far = board::LatenessOf(board, 40'000);
  REQUIRE(far.has_value());
  CHECK(far->rank == 1);
  CHECK(far->skew_seconds >= 10e-6);
}

TEST_CASE("ranks that write nonsense make no nonsense of the rest") {
  const BoardMemory memory(2);
  const board::Board& board = memory.board;
  board::NoteEnd(board, 0, OpKind::kAllReduce, true, 4096);
  board::NoteEnd(board, 0, OpKind::kAllReduce, false, 4096);
  board.tally(1).kinds[1].succeeded = ~0ull;
  board.tally(1).kinds[1].bytes = ~0ull;
  const board::Totals totals = board::TotalsOf(board, kSecond);
  CHECK(totals[1].succeeded == 1 + kSecond / 16);
  CHECK(totals[1].failed == 1);
  CHECK(totals[1].bytes == 4096 + uint64_t{4096} * kSecond);
  CHECK(totals[2].succeeded == 0);
  for (const uint64_t seq : {~0ull, 1ull << 60}) {
    INFO(seq);
    board::NoteArrival(board, 0, seq, 1);
    board::NoteArrival(board, 1, seq, 2);
    CHECK_NOTHROW(board::LatenessOf(board, 5000));
  }
  // Times before the clock began, and of tomorrow.
  board::NoteArrival(board, 0, 1, INT64_MIN);
  board::NoteArrival(board, 1, ~0ull, INT64_MAX);
  const auto lateness = board::LatenessOf(board, 5000);
  CHECK((!lateness.has_value() || lateness->skew_seconds >= 0));
}

TEST_CASE("bus bytes are those of nccl-tests") {
  const auto spec = [](OpKind kind) {
    CollectiveSpec spec{};
    spec.kind = kind;
    spec.dtype = DataType::kFloat32;
    spec.count = 1000;
    return spec;
  };
  CHECK(BusBytes(spec(OpKind::kAllReduce), 4) == 6000);    // 2 (n-1)/n of the vector
  CHECK(BusBytes(spec(OpKind::kAllGather), 4) == 12'000);  // (n-1)/n of n blocks
  CHECK(BusBytes(spec(OpKind::kReduceScatter), 4) == 12'000);
  CHECK(BusBytes(spec(OpKind::kBroadcast), 4) == 4000);
  CHECK(BusBytes(spec(OpKind::kBarrier), 4) == 0);
}

TEST_CASE("only what is large says how fast the way is, and every operation how long it took") {
  OperationProbe probe;
  probe.Ended(OpKind::kAllReduce, OperationProbe::kBoard, 1000, 64);
  CHECK(probe.busbw[1].value() == 0);
  probe.Ended(OpKind::kAllReduce, 0, kSecond, 1 << 20);
  CHECK(probe.busbw[1].value() == 1 << 20);
  CHECK(probe.durations[1][OperationProbe::kBoard].Read().count == 1);
  CHECK(probe.durations[1][0].Read().count == 1);
}

TEST_CASE("transfers are counted by route and class, errors by code") {
  TransferProbe probe;
  probe.Ended({.outcome = absl::OkStatus(), .bytes = 10, .route = Route::kPull, .moved_ns = 5},
              p2p::Priority::kLatency);
  probe.Ended({.outcome = absl::AbortedError("x"), .route = Route::kPull}, p2p::Priority::kBulk);
  const TransferProbe::OfRoute& pulls = probe.routes[static_cast<size_t>(Route::kPull)];
  CHECK(pulls.succeeded.value() == 1);
  CHECK(pulls.failed.value() == 1);
  CHECK(pulls.bytes[static_cast<size_t>(p2p::Priority::kLatency)].value() == 10);
  CHECK(pulls.durations.Read().count == 1);
  AnswerProbe answers;
  answers.Answered(absl::StatusCode::kOk);
  answers.Answered(absl::StatusCode::kNotFound);
  answers.Answered(static_cast<absl::StatusCode>(99));
  for (size_t code = 0; code < kCodes; ++code) {
    CHECK(answers.errors[code].value() == (code == 5 ? 1u : 0u));
  }
}

}  // namespace
}  // namespace shunt::daemon
