#include "runtime/recorder/kept.h"

#include <catch2/catch.hpp>
#include <vector>

namespace shunt::recorder {
namespace {

std::vector<int> All(const Kept<int>& kept) {
  std::vector<int> all;
  kept.ForEach([&](int i) { all.push_back(i); });
  return all;
}

TEST_CASE("the last are kept, by number") {
  Kept<int> kept(3, 1000);
  for (int i = 1; i <= 5; ++i) kept.Add(i, 1);
  CHECK(All(kept) == std::vector<int>{3, 4, 5});
  CHECK(kept.bytes() == 3);
}

TEST_CASE("the last are kept, by bytes") {
  Kept<int> kept(100, 10);
  for (int i = 1; i <= 5; ++i) kept.Add(i, 4);
  CHECK(All(kept) == std::vector<int>{4, 5});
  kept.Add(6, 10);
  CHECK(All(kept) == std::vector<int>{6});
  kept.Add(7, 11);  // more than there may be
  CHECK(All(kept) == std::vector<int>{6});
}

TEST_CASE("of none nothing is kept") {
  Kept<int> kept(0, 1000);
  kept.Add(1, 1);
  CHECK(kept.size() == 0);
}

}  // namespace
}  // namespace shunt::recorder
