#include "runtime/exchange/link_probe.h"

#include <catch2/catch.hpp>

#include "runtime/transport/fake/network.h"

using namespace shunt;
using namespace shunt::exchange;

namespace {

// Two endpoints that measure their connection; the numbers of both.
struct Pair {
  explicit Pair(const transport::FakeNetwork::Options& options) : network(options) {
    for (int i = 0; i < 2; ++i) network.AddEndpoint();
    network.Connect(0, 1);
    for (transport::PeerId i = 0; i < 2; ++i) {
      transport::Transport& endpoint = network.endpoint(static_cast<int>(i));
      const transport::PeerId other = 1 - i;
      REQUIRE(endpoint.Open(7, {other}).ok());
      probes[i] = std::make_unique<LinkProbe>(i == 0, other, 7, &endpoint, uint64_t{1} << 32);
    }
  }
  void Poll() {
    for (int i = 0; i < 2; ++i) {
      transport::Completion completions[64];
      while (const size_t count = network.endpoint(i).Poll(absl::MakeSpan(completions))) {
        for (size_t c = 0; c < count; ++c) {
          const transport::Event event = completions[c].event;
          if (event != transport::Event::kSent && event != transport::Event::kReceived) continue;
          probes[i]->OnCompletion(completions[c], {network.now_ns(), 0});
        }
      }
    }
  }
  void Run() {
    for (auto& probe : probes) probe->Start({network.now_ns(), 0});
    Poll();
    while (!(probes[0]->done() && probes[1]->done()) && network.Step()) Poll();
  }
  transport::FakeNetwork network;
  std::unique_ptr<LinkProbe> probes[2];
};

}  // namespace

TEST_CASE("both sides learn the link's latency and rate", "[probe]") {
  transport::FakeNetwork::Options options;
  options.latency_ns = 50'000;
  options.bytes_per_second = 100e6;
  Pair pair(options);
  pair.Run();
  for (const auto& probe : pair.probes) {
    REQUIRE(probe->done());
    CHECK(probe->numbers().latency_ns >= 50'000);
    CHECK(probe->numbers().latency_ns < 60'000);
    CHECK(static_cast<double>(probe->numbers().bytes_per_s) == Approx(100e6).epsilon(0.05));
    CHECK(probe->numbers().message_ns < 10'000);
  }
  CHECK(pair.probes[0]->numbers() == pair.probes[1]->numbers());
}

TEST_CASE("a connection that breaks meanwhile gives no numbers", "[probe]") {
  Pair pair({});
  for (auto& probe : pair.probes) probe->Start({pair.network.now_ns(), 0});
  pair.Poll();
  for (int i = 0; i < 20; ++i) {
    pair.network.Step();
    pair.Poll();
  }
  REQUIRE_FALSE(pair.probes[0]->done());
  pair.network.Kill(1);
  while (!pair.probes[0]->done() && pair.network.Step()) pair.Poll();
  CHECK(pair.probes[0]->done());
  CHECK(pair.probes[0]->numbers() == LinkNumbers());
}
