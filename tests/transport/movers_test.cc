// Buffers and sockets that are taken back while a mover is at them. What moves when cannot be said,
// so there are many turns; every frame has a checksum, which a buffer that changed too early
// breaks.
#include <catch2/catch.hpp>
#include <random>

#include "tests/transport/messages.h"
#include "tests/transport/tcp_world.h"

namespace shunt::transport::testing {
namespace {

constexpr int kTurns = 100;
constexpr size_t kBytes = 1 << 20;

class MoverWorld : public TcpWorld {
 public:
  explicit MoverWorld(int nodes)
      : TcpWorld(nodes, Patient({.engine = OwnStreams(),
                                 .streams = 2,
                                 .movers = 1,
                                 .mover_spin_ns = 200'000,
                                 .crc = true,
                                 .unsent_bytes_max = 0,
                                 .send_buffer_bytes = 4 << 20,
                                 .receive_buffer_bytes = 4 << 20})) {}
  static Engine::Options OwnStreams() {
    Engine::Options options;
    options.own_stream_bytes = 1;
    return options;
  }
  // Until data has begun to leave, and then a little more or less.
  void LetSome(std::mt19937* random) {
    const uint64_t before = at(0).counters(1).payload_bytes_sent;
    const size_t looks = (*random)() % 64;
    REQUIRE(Look([&] { return at(0).counters(1).payload_bytes_sent != before; }));
    for (size_t i = 0; i < looks; ++i) at(0).counters(1);
  }
  // Never waits: what movers do does not always wake anyone. False if a peer is lost.
  bool Look(const std::function<bool()>& done) {
    const int64_t deadline_ns = NowNs() + 20'000'000'000;
    while (!done()) {
      for (int node = 0; node < nodes(); ++node) {
        Completion one;
        if (at(node).Poll(absl::MakeSpan(&one, 1)) == 0) continue;
        if (one.event == Event::kPeerLost) return false;
        log(node).push_back(std::move(one));
      }
      if (NowNs() > deadline_ns) return false;
    }
    return true;
  }
  bool Ended(int node, Event event, uint64_t token) {
    return Look([&] { return Find(node, event, token) != nullptr; });
  }
};

TEST_CASE("a receiver that closes has its buffer back from its mover") {
  std::mt19937 random(1);
  const Buffer data = Pattern(kBytes, 1);
  Buffer got(kBytes);
  MoverWorld world(2);
  for (uint64_t turn = 1; turn <= kTurns; ++turn) {
    world.OpenAll(turn);
    world.at(1).PostRecv(To(0, 0, turn), Backwards(&got, 1 + turn % 40), turn);
    world.at(0).PostSend(To(1, 0, turn), data, turn);
    world.LetSome(&random);
    world.at(1).Close(turn);
    std::fill(got.begin(), got.end(), std::byte{7});
    REQUIRE(world.Ended(0, Event::kSent, turn));
    REQUIRE(Same(got, Buffer(kBytes, std::byte{7})));
    world.at(0).Close(turn);
  }
  CHECK(world.Count(0, Event::kPeerLost) + world.Count(1, Event::kPeerLost) == 0);
}

TEST_CASE("a sender that closes has its buffer back from its mover") {
  std::mt19937 random(2);
  const Buffer whole = Pattern(kBytes, 1);
  Buffer data(kBytes), got(kBytes);
  MoverWorld world(2);
  for (uint64_t turn = 1; turn <= kTurns; ++turn) {
    data = whole;
    world.OpenAll(turn);
    world.at(1).PostRecv(To(0, 0, turn), absl::MakeSpan(got), turn);
    world.at(0).PostSend(To(1, 0, turn), data, turn);
    world.LetSome(&random);
    world.at(0).Close(turn);
    std::fill(data.begin(), data.end(), std::byte{7});
    REQUIRE(world.Ended(1, Event::kReceived, turn));
    world.at(1).Close(turn);
  }
  CHECK(world.Count(0, Event::kPeerLost) + world.Count(1, Event::kPeerLost) == 0);
}

TEST_CASE("a sender whose peer closes has its buffer back from its mover") {
  std::mt19937 random(3);
  const Buffer whole = Pattern(8 * kBytes, 1);
  Buffer data = whole, got(whole.size());
  MoverWorld world(2);
  for (uint64_t turn = 1; turn <= kTurns; ++turn) {
    world.OpenAll(turn);
    world.at(1).PostRecv(To(0, 0, turn), absl::MakeSpan(got), turn);
    world.at(0).PostSend(To(1, 0, turn), data, turn);
    const uint64_t before = world.at(0).counters(1).payload_bytes_sent;
    world.LetSome(&random);
    world.at(1).Close(turn);
    REQUIRE(world.Ended(0, Event::kSent, turn));
    // What frames were made of last is what the mover would be at.
    const size_t end = world.at(0).counters(1).payload_bytes_sent - before;
    const size_t begin = end - std::min(end, kBytes / 2);
    std::fill(data.begin() + begin, data.begin() + end, std::byte{7});
    world.at(0).Close(turn);
    world.Settle();
    std::copy(whole.begin() + begin, whole.begin() + end, data.begin() + begin);
  }
  CHECK(world.Count(0, Event::kPeerLost) + world.Count(1, Event::kPeerLost) == 0);
}

TEST_CASE("a peer that is removed while its mover has much for it harms no other") {
  constexpr int kPeers = 4;
  const Buffer data = Pattern(4 * kBytes, 1);
  for (int turn = 0; turn < 10; ++turn) {
    std::mt19937 random(turn);
    std::vector<Buffer> got(kPeers + 1, Buffer(data.size()));
    MoverWorld world(kPeers + 1);
    world.OpenAll(1);
    for (int peer = 1; peer <= kPeers; ++peer) {
      const auto id = static_cast<PeerId>(peer);
      world.at(peer).PostRecv(To(0, 0), absl::MakeSpan(got[peer]), 0);
      world.at(0).PostSend(To(id, 0), data, id);
    }
    world.LetSome(&random);
    world.tcp(0).RemovePeer(1);
    world.tcp(0).RemovePeer(2);
    for (int peer = 3; peer <= kPeers; ++peer) {
      REQUIRE(world.Code(peer, Event::kReceived, 0) == absl::StatusCode::kOk);
      CHECK(Same(got[peer], data));
    }
  }
}

}  // namespace
}  // namespace shunt::transport::testing
