#include "runtime/collectives/plan/net_plan.h"

#include "catch2/catch.hpp"

namespace shunt {
namespace {

TEST_CASE("algorithm names read back") {
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto a = static_cast<Algorithm>(i);
    REQUIRE(AlgorithmOf(Name(a)).ok());
    CHECK(*AlgorithmOf(Name(a)) == a);
  }
}

}  // namespace
}  // namespace shunt
