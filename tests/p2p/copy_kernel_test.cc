#include "runtime/p2p/copy_kernel.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace shunt::p2p {
namespace {

TEST_CASE("runs of any length and alignment are copied, and nothing beside them", "[p2p]") {
  constexpr size_t kRoom = 5000;
  std::mt19937 random(1);
  std::vector<std::byte> source(kRoom), original(kRoom);
  for (std::byte& byte : source) byte = static_cast<std::byte>(random());
  for (std::byte& byte : original) byte = static_cast<std::byte>(random());
  for (const StorePolicy policy : {StorePolicy::kTemporal, StorePolicy::kStreaming}) {
    for (size_t bytes = 1; bytes < 1400; bytes += bytes < 70 ? 1 : 29) {
      for (size_t shift = 0; shift < 64; shift += 7) {
        // Two runs in one call, so that the next one's head is fetched too.
        const size_t from = random() % 1000, to = 100 + shift;
        std::vector<std::byte> destination = original, expected = original;
        const PointerRun runs[] = {
            {source.data() + from, destination.data() + to, bytes},
            {source.data() + from + 2000, destination.data() + to + bytes + 1, bytes}};
        for (const PointerRun& run : runs) {
          std::copy_n(run.from, bytes, expected.begin() + (run.to - destination.data()));
        }
        CopyRuns(runs, policy);
        INFO(bytes << " bytes to alignment " << shift);
        REQUIRE(destination == expected);
      }
    }
  }
}

}  // namespace
}  // namespace shunt::p2p
