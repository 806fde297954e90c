#include "runtime/exchange/failover.h"

#include <catch2/catch.hpp>

using namespace shunt::exchange;
using Verdict = Failover::Verdict;

namespace {

// Nothing pending.
LossNote At(uint64_t completed) { return {completed, 0, false, false, "x is lost", ""}; }
// The next one pending.
LossNote In(uint64_t sequence, bool intact = true, bool has_result = false) {
  return {sequence - 1, sequence, intact, has_result, "x is lost", "call"};
}

Failover Decided(const std::vector<LossNote>& reports) {
  Failover failover(static_cast<int>(reports.size()));
  for (size_t i = 0; i < reports.size(); ++i) {
    CHECK_FALSE(failover.decided());
    CHECK(failover.Report(static_cast<int>(i), reports[i]) == (i + 1 == reports.size()));
  }
  REQUIRE(failover.decided());
  return failover;
}

}  // namespace

TEST_CASE("nothing pending, nothing to do", "[failover]") {
  const Failover failover = Decided({At(7), At(7), At(6)});
  CHECK(failover.verdict() == Verdict::kGoOn);
  CHECK(failover.RunsAgain() == 0);
}

TEST_CASE("what nobody has completed is run again", "[failover]") {
  const Failover failover = Decided({In(8), In(8), At(7)});
  CHECK(failover.verdict() == Verdict::kRunAgain);
  CHECK(failover.RunsAgain() == 8);
}

TEST_CASE("a node that is an operation behind takes part when it gets there", "[failover]") {
  // Node 2 has not ended 7, which went another way.
  const Failover failover = Decided({In(8), At(7), At(6)});
  CHECK(failover.verdict() == Verdict::kRunAgain);
  CHECK(failover.RunsAgain() == 8);
}

TEST_CASE("what others have completed cannot be run again", "[failover]") {
  const Failover failover = Decided({At(8), In(8), In(8, false)});
  CHECK(failover.verdict() == Verdict::kTooLate);
  CHECK(failover.RunsAgain() == 0);
  CHECK(failover.Words() == "call, but x is lost");
  CHECK(Decided({In(9), In(8), In(8)}).verdict() == Verdict::kTooLate);
}

TEST_CASE("inputs that were overwritten on one node end it for all", "[failover]") {
  CHECK(Decided({In(8), In(8, false), At(7)}).verdict() == Verdict::kOverwritten);
}

TEST_CASE("results that all have need nothing", "[failover]") {
  CHECK(Decided({At(8), In(8, false, true), In(8, false, true)}).verdict() == Verdict::kGoOn);
  CHECK(Decided({In(8, false, true), In(8, false, true)}).verdict() == Verdict::kGoOn);
}

TEST_CASE("who has the result runs it again for those who lack it, if it can", "[failover]") {
  CHECK(Decided({In(8, true, true), In(8)}).RunsAgain() == 8);
  CHECK(Decided({In(8, false, true), In(8)}).verdict() == Verdict::kOverwritten);
}

TEST_CASE("a node's first report counts", "[failover]") {
  Failover failover(2);
  CHECK_FALSE(failover.Report(1, In(8)));
  CHECK(failover.Reported(1));
  CHECK_FALSE(failover.Reported(0));
  CHECK_FALSE(failover.Report(1, At(100)));
  CHECK(failover.Report(0, In(8)));
  CHECK(failover.RunsAgain() == 8);
}

TEST_CASE("whatever nodes say there is a verdict", "[failover]") {
  const Failover failover =
      Decided({{0, ~0ull, true, false, "", ""}, {~0ull, ~0ull, true, false, "", ""}});
  CHECK(failover.verdict() == Verdict::kTooLate);
  CHECK(failover.Words() == ", but ");
}
