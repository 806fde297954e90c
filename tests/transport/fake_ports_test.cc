// The ports of the network in virtual time: what nodes' connections share.
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/transport/fake/network.h"
#include "runtime/transport/fake/port.h"
#include "tests/transport/messages.h"
#include "tests/transport/world.h"

namespace shunt::transport::testing {
namespace {

constexpr size_t kBytes = 10'000'000;
constexpr double kRate = 1e9;  // a message takes 10 ms

FakeNetwork::Options Ports() {
  FakeNetwork::Options options;
  options.latency_ns = 1000;
  options.bytes_per_second = 1e18;
  return options;
}

// Milliseconds that messages from node to node take, all at once.
double Milliseconds(const FakeNetwork::Options& options, const PortRate& out, const PortRate& in,
                    const std::vector<std::pair<int, int>>& messages, size_t bytes = kBytes) {
  FakeWorld world(4, options);
  for (int node = 0; node < 4; ++node) world.network().SetPorts(node, out, in);
  world.OpenAll(1);
  world.Settle();
  const int64_t begin_ns = world.network().now_ns();
  std::vector<Buffer> got(messages.size(), Buffer(bytes));
  const Buffer sent(bytes);
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto [from, to] = messages[i];
    const auto slice = static_cast<uint32_t>(i);
    world.at(to).PostRecv(To(static_cast<PeerId>(from), slice), absl::MakeSpan(got[i]), slice);
    world.at(from).PostSend(To(static_cast<PeerId>(to), slice), sent, slice);
  }
  world.Settle();
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto slice = static_cast<uint32_t>(i);
    REQUIRE(world.Code(messages[i].second, Event::kReceived, slice) == absl::StatusCode::kOk);
  }
  return static_cast<double>(world.network().now_ns() - begin_ns) * 1e-6;
}

double Milliseconds(const std::vector<std::pair<int, int>>& messages) {
  const PortRate rate{.bytes_per_second = kRate};
  return Milliseconds(Ports(), rate, rate, messages);
}

TEST_CASE("a port carries one node's messages one after the other, in each direction") {
  CHECK(Milliseconds({{0, 1}}) == Approx(10).epsilon(0.01));
  CHECK(Milliseconds({{0, 1}, {0, 2}}) == Approx(20).epsilon(0.01));
  CHECK(Milliseconds({{0, 1}, {0, 2}, {0, 3}}) == Approx(30).epsilon(0.01));
  CHECK(Milliseconds({{1, 0}, {2, 0}, {3, 0}}) == Approx(30).epsilon(0.01));
}

TEST_CASE("both directions of a port, and ports of other nodes, do not disturb each other") {
  CHECK(Milliseconds({{0, 1}, {1, 0}}) == Approx(10).epsilon(0.01));
  CHECK(Milliseconds({{0, 1}, {1, 2}, {2, 3}, {3, 0}}) == Approx(10).epsilon(0.01));
}

TEST_CASE("connections take turns at a port") {
  FakeWorld world(3, Ports());
  const PortRate rate{.bytes_per_second = kRate};
  for (int node = 0; node < 3; ++node) world.network().SetPorts(node, rate, rate);
  world.OpenAll(1);
  world.Settle();
  const int64_t begin_ns = world.network().now_ns();
  Buffer long_one(kBytes), short_one(100'000);
  const Buffer sent(kBytes);
  world.at(1).PostRecv(To(0, 0), absl::MakeSpan(long_one), 0);
  world.at(0).PostSend(To(1, 0), sent, 0);
  world.at(2).PostRecv(To(0, 1), absl::MakeSpan(short_one), 1);
  world.at(0).PostSend(To(2, 1), absl::MakeConstSpan(sent).first(short_one.size()), 1);
  int64_t short_ns = -1;
  REQUIRE(world.Until([&] {
    for (const Completion& c : world.log(2)) {
      if (c.event == Event::kReceived && short_ns < 0) short_ns = world.network().now_ns();
    }
    return short_ns >= 0;
  }));
  // After a frame or two of the long one, not after all of it.
  CHECK(static_cast<double>(short_ns - begin_ns) * 1e-6 < 1);
}

TEST_CASE("a burst passes a port at its peak, and what follows at its rate") {
  const PortRate free{};
  PortRate bucket{.bytes_per_second = kRate, .burst_bytes = 4e6, .peak_bytes_per_second = 10e9};
  CHECK(Milliseconds(Ports(), bucket, free, {{0, 1}}, 3'000'000) == Approx(0.3).epsilon(0.02));
  CHECK(Milliseconds(Ports(), bucket, free, {{0, 1}}) == Approx(6).epsilon(0.02));
  CHECK(Milliseconds(Ports(), free, bucket, {{0, 1}}) == Approx(6).epsilon(0.02));
}

TEST_CASE("a port's bucket fills with time, up to its size") {
  Port port({.bytes_per_second = 1e9, .burst_bytes = 1000});
  CHECK(port.Take(0, 1000) == 0);
  CHECK(port.Take(0, 500) == 500);
  // Half of it after 500 ns more.
  CHECK(port.Take(1000, 1500) == 1000);
  CHECK(port.Take(1'000'000, 1500) == 500);
  CHECK(port.use().bytes == 4500);
  // Bursts count too.
  CHECK(port.use().busy_ns == 4500);
}

TEST_CASE("a frame has a time of its own at a port") {
  const PortRate slow{.bytes_per_second = kRate, .frame_ns = 1'000'000};
  const double plain = Milliseconds({{0, 1}});
  FakeNetwork::Options options = Ports();
  options.engine.piece_bytes = kBytes / 10;
  // Ten frames of data and the grant before them.
  CHECK(Milliseconds(options, slow, {.bytes_per_second = kRate}, {{0, 1}}) ==
        Approx(plain + 11).epsilon(0.02));
}

TEST_CASE("scaled payload takes the time of what it stands for") {
  FakeNetwork::Options options = Ports();
  options.payload_scale = 1000;
  const PortRate rate{.bytes_per_second = kRate};
  CHECK(Milliseconds(options, rate, rate, {{0, 1}}, kBytes / 1000) == Approx(10).epsilon(0.01));
}

TEST_CASE("the network tells which endpoints to poll") {
  FakeWorld world(3, Ports());
  int index;
  while (world.network().NextTouched(&index)) {
  }
  world.OpenAll(1);
  world.Settle();
  while (world.network().NextTouched(&index)) {
  }
  Buffer got(10);
  const Buffer sent(10);
  world.at(1).PostRecv(To(0, 0), absl::MakeSpan(got), 0);
  world.at(0).PostSend(To(1, 0), sent, 0);
  world.Settle();
  std::vector<int> touched;
  while (world.network().NextTouched(&index)) touched.push_back(index);
  std::sort(touched.begin(), touched.end());
  CHECK(touched == std::vector<int>{0, 1});
}

}  // namespace
}  // namespace shunt::transport::testing
