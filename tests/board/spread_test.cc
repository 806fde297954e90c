#include "runtime/board/spread.h"

#include <catch2/catch.hpp>
#include <initializer_list>
#include <vector>

#include "runtime/board/layout.h"
#include "tests/board/world.h"

namespace shunt::board {
namespace {

cpu_set_t Cpus(std::initializer_list<int> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

// Where each of the participants that run on `at` goes, one after another.
std::vector<int> Settle(const cpu_set_t& allowed, std::vector<int> at) {
  for (size_t p = 0; p < at.size(); ++p) {
    at[p] = PlaceFor(allowed, at.data(), static_cast<int>(at.size()), static_cast<int>(p));
  }
  return at;
}

TEST_CASE("ranks on one CPU share out the CPUs that they may run on") {
  CHECK(Settle(Cpus({0, 1}), {0, 0, 0, 0}) == std::vector<int>{0, 0, 1, 1});
  CHECK(Settle(Cpus({0, 1}), {1, 1, 0, 1}) == std::vector<int>{1, 1, 0, 0});
  CHECK(Settle(Cpus({2, 5, 9}), {5, 5, 5}) == std::vector<int>{5, 2, 9});
}

TEST_CASE("ranks that have their share of CPUs stay where they are") {
  CHECK(Settle(Cpus({0, 1}), {0, 1, 1, 0}) == std::vector<int>{0, 1, 1, 0});
  CHECK(Settle(Cpus({0, 1}), {0, 0, 1}) == std::vector<int>{0, 0, 1});
  CHECK(Settle(Cpus({0, 1, 2, 3}), {3, 1}) == std::vector<int>{3, 1});
}

TEST_CASE("a rank that may run on one CPU stays there, whoever else does") {
  CHECK(Settle(Cpus({3}), {3, 3, 3}) == std::vector<int>{3, 3, 3});
}

TEST_CASE("those who move at the same moment do not all go to one CPU") {
  const std::vector<int> at(4, 0);
  std::vector<int> to;
  for (int p = 0; p < 4; ++p) to.push_back(PlaceFor(Cpus({0, 1, 2, 3}), at.data(), 4, p));
  CHECK(to == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("what a thread may run on is the same after it was moved") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  const BoardShape shape = {.ranks = 2, .world = 2};
  testing::SharedMemory memory(Board::BytesFor(shape));
  const Board board(memory.data(), shape);
  const Channel channel = board.channel(0);
  Spread spread;
  for (int i = 0; i < 1000; ++i) {
    const auto here = static_cast<uint32_t>(::sched_getcpu() + 1);
    for (int p = 0; p < 2; ++p) channel.retired(p).cpu.store(here);
    if (const int cpu = spread.Ended(channel, 1); cpu >= 0) MoveTo(cpu);
  }
  cpu_set_t after;
  REQUIRE(::sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace shunt::board
