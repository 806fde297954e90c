// How communicators and peers end, over every carrier. Buffers stand before their world, as in
// conformance_test.cc.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <tuple>

#include "tests/transport/messages.h"
#include "tests/transport/worlds.h"

namespace shunt::transport::testing {
namespace {

constexpr auto kOk = absl::StatusCode::kOk;

TEMPLATE_LIST_TEST_CASE("a sender that closes has the buffers of eager messages back", "", Worlds) {
  Engine::Options options;
  options.limits.eager_bytes = 64 << 10;
  auto data = std::make_unique<Buffer>(Pattern(64 << 10, 1));
  Buffer got(64 << 10);
  const Buffer other = Pattern(64 << 10, 2);
  TestType world(2, options);
  world.OpenAll(1);
  world.OpenAll(2);
  world.Settle();
  world.at(0).PostSend(To(1, 0), *data, 0);
  world.at(0).PostSend(To(1, 1), *data, 1);
  Completion c;
  if (world.at(0).Poll(absl::MakeSpan(&c, 1)) == 1) world.log(0).push_back(c);
  world.at(0).Close(1);
  data.reset();
  world.at(1).PostRecv(To(0, 2), absl::MakeSpan(got), 2);
  CHECK(world.Code(1, Event::kReceived, 2) == absl::StatusCode::kAborted);
  world.at(0).PostSend(To(1, 0, 2), other, 9);
  world.at(1).PostRecv(To(0, 0, 2), absl::MakeSpan(got), 9);
  REQUIRE(world.Code(1, Event::kReceived, 9) == kOk);
  CHECK(Same(got, other));
}

TEMPLATE_LIST_TEST_CASE("last words reach a peer that opens after the close", "", Worlds) {
  std::vector<std::byte> buffer(100);
  TestType world(2);
  REQUIRE(world.at(0).Open(1, {1}).ok());
  REQUIRE(world.at(0).SendNote(1, 1, AsBytes("why")).ok());
  world.at(0).Close(1);
  world.Settle();
  REQUIRE(world.at(1).Open(1, {0}).ok());
  world.at(1).PostRecv(To(0, 7), absl::MakeSpan(buffer), 7);
  REQUIRE(world.WaitCount(1, Event::kNote, 1));
  REQUIRE(world.WaitCount(1, Event::kReceived, 1));
  for (const Completion& c : world.log(1)) {
    if (c.event == Event::kNote) CHECK(c.text == "why");
    if (c.event == Event::kReceived) CHECK(c.code == absl::StatusCode::kAborted);
  }
}

TEMPLATE_LIST_TEST_CASE("late openers hear last words, however many there were before", "",
                        Worlds) {
  constexpr uint64_t kBefore = 1100;  // more than may wait for their peer at a time
  TestType world(2);
  world.Settle();
  // Those that had nothing to say wait for nobody.
  for (uint64_t communicator = 1; communicator <= kBefore; ++communicator) {
    REQUIRE(world.at(0).Open(communicator, {1}).ok());
    world.at(0).Close(communicator);
  }
  // Those that had are over when they have been heard.
  for (uint64_t i = 1; i <= kBefore; ++i) {
    const uint64_t communicator = kBefore + i;
    REQUIRE(world.at(0).Open(communicator, {1}).ok());
    REQUIRE(world.at(0).SendNote(1, communicator, AsBytes("why")).ok());
    world.at(0).Close(communicator);
    REQUIRE(world.at(1).Open(communicator, {0}).ok());
    REQUIRE(world.WaitCount(1, Event::kNote, static_cast<int>(i)));
    world.at(1).Close(communicator);
  }
  CHECK(world.Count(1, Event::kPeerLost) == 0);
}

TEMPLATE_LIST_TEST_CASE("who opens after the peer has closed is told at once", "", Worlds) {
  std::vector<std::byte> buffer(100);
  TestType world(2);
  REQUIRE(world.at(0).Open(1, {1}).ok());
  world.Settle();
  world.at(0).Close(1);
  world.Settle();
  REQUIRE(world.at(1).Open(1, {0}).ok());
  world.at(1).PostRecv(To(0, 7), absl::MakeSpan(buffer), 7);
  REQUIRE(world.WaitCount(1, Event::kReceived, 1));
  for (const Completion& c : world.log(1)) {
    if (c.event == Event::kReceived) CHECK(c.code == absl::StatusCode::kAborted);
  }
}

TEMPLATE_LIST_TEST_CASE("a receiver that closes gets its buffers back at once", "", Worlds) {
  const Buffer data = Pattern(8 << 20, 1);
  Buffer got(8 << 20);
  TestType world(2);
  world.OpenAll(1);
  world.OpenAll(2);
  world.Settle();
  world.at(1).PostRecv(To(0, 0), absl::MakeSpan(got), 0);
  world.at(1).PostRecv(To(0, 1), absl::MakeSpan(got), 1);
  world.at(0).PostSend(To(1, 0), data, 0);
  // Until it has begun to arrive; what moves alone is not to be looked at.
  REQUIRE(world.UntilSome([&] {
    if (world.moves_alone()) return world.at(0).counters(1).payload_bytes_sent != 0;
    return got[1000] != std::byte{0} || got[1001] != std::byte{0};
  }));
  world.at(1).Close(1);
  std::fill(got.begin(), got.end(), std::byte{7});
  const bool was_sent = world.moves_alone() && world.Code(0, Event::kSent, 0) == kOk;
  CHECK((was_sent || world.Code(0, Event::kSent, 0) == absl::StatusCode::kAborted));
  world.Settle();
  CHECK(Same(got, Buffer(8 << 20, std::byte{7})));
  CHECK((was_sent || world.Count(1, Event::kReceived) == 0));
  // Later posts of the sender end too; other communicators go on.
  world.at(0).PostSend(To(1, 2), data, 2);
  CHECK(world.Code(0, Event::kSent, 2) == absl::StatusCode::kAborted);
  world.at(1).PostRecv(To(0, 0, 2), absl::MakeSpan(got), 9);
  world.at(0).PostSend(To(1, 0, 2), data, 9);
  REQUIRE(world.Code(1, Event::kReceived, 9) == kOk);
  CHECK(Same(got, data));
}

TEMPLATE_LIST_TEST_CASE("a sender that closes gets its buffers back at once", "", Worlds) {
  const Buffer whole = Pattern(8 << 20, 1);
  Buffer data = whole, got(8 << 20), small(10), got_small(10);
  TestType world(2);
  world.OpenAll(1);
  world.OpenAll(2);
  world.Settle();
  world.at(1).PostRecv(To(0, 0), absl::MakeSpan(got), 0);
  world.Settle();
  world.at(0).PostSend(To(1, 0), data, 0);
  REQUIRE(world.UntilSome([&] {
    if (world.moves_alone()) return world.at(0).counters(1).payload_bytes_sent != 0;
    return got[1000] != std::byte{0} || got[1001] != std::byte{0};
  }));
  small = Pattern(10, 3);
  world.at(0).PostSend(To(1, 5), small, 5);
  world.at(0).Close(1);
  std::fill(data.begin(), data.end(), std::byte{0xff});
  const bool had_come = world.moves_alone() && world.Code(1, Event::kReceived, 0) == kOk;
  CHECK((had_come || world.Code(1, Event::kReceived, 0) == absl::StatusCode::kAborted));
  // What did arrive is right.
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != std::byte{0} && got[i] != whole[i]) FAIL("byte " << i);
  }
  // A small message that was sent before is not taken back.
  world.at(1).PostRecv(To(0, 5), absl::MakeSpan(got_small), 5);
  CHECK(world.Code(1, Event::kReceived, 5) == kOk);
  CHECK(Same(got_small, small));
  world.at(1).PostRecv(To(0, 6), absl::MakeSpan(got_small), 6);
  CHECK(world.Code(1, Event::kReceived, 6) == absl::StatusCode::kAborted);
  data = whole;
  world.at(1).PostRecv(To(0, 0, 2), absl::MakeSpan(got), 9);
  world.at(0).PostSend(To(1, 0, 2), data, 9);
  REQUIRE(world.Code(1, Event::kReceived, 9) == kOk);
  CHECK(Same(got, data));
}

TEMPLATE_LIST_TEST_CASE("what was sent arrives although its sender closes at once", "", Worlds) {
  const size_t bytes = GENERATE(size_t{8}, size_t{300'000});
  Buffer data = Pattern(bytes, 1), got(bytes);
  const Buffer whole = data;
  TestType world(2);
  world.OpenAll(1);
  for (uint32_t i = 0; i < 8; ++i) world.at(1).PostRecv(To(0, i), absl::MakeSpan(got), i);
  world.Settle();
  for (uint32_t i = 0; i < 8; ++i) world.at(0).PostSend(To(1, i), data, i);
  // Small ones can all be on their way before the receiver looks.
  world.SetQuiet(1, bytes == 8);
  REQUIRE(world.WaitCount(0, Event::kSent, 8));
  world.at(0).Close(1);
  std::fill(data.begin(), data.end(), std::byte{0});
  world.SetQuiet(1, false);
  REQUIRE(world.WaitCount(1, Event::kReceived, 8));
  for (uint32_t i = 0; i < 8; ++i) CHECK(world.Code(1, Event::kReceived, i) == kOk);
  CHECK(Same(got, whole));
}

TEMPLATE_LIST_TEST_CASE("closed communicators are forgotten, others opened", "", Worlds) {
  TestType world(2);
  for (uint64_t communicator = 1; communicator <= 50; ++communicator) {
    world.OpenAll(communicator);
    Buffer data = Pattern(20'000, communicator), got(20'000), none(20'000);
    world.at(0).PostSend(To(1, 0, communicator), data, communicator);
    world.at(1).PostRecv(To(0, 0, communicator), absl::MakeSpan(got), communicator);
    world.at(1).PostRecv(To(0, 1, communicator), absl::MakeSpan(none), 1000 + communicator);
    REQUIRE(world.Code(1, Event::kReceived, communicator) == kOk);
    REQUIRE(Same(got, data));
    world.at(0).Close(communicator);
    world.at(1).Close(communicator);
    CHECK(!world.at(0).SendNote(1, communicator, AsBytes("late")).ok());
  }
  // One that only one side ever opens.
  world.Open(0, 99);
  world.at(0).Close(99);
  world.Settle();
  world.Open(1, 99);
  world.Settle();
  world.at(1).Close(99);
  world.Settle();
  CHECK(world.Count(0, Event::kPeerLost) == 0);
  CHECK(world.Count(1, Event::kPeerLost) == 0);
  CHECK(world.at(0).counters(1).protocol_errors == 0);
}

TEMPLATE_LIST_TEST_CASE("a lost peer ends all that was posted to it, and nothing else", "",
                        Worlds) {
  Buffer data(100'000), got(100'000), other(100'000);
  TestType world(3);
  world.OpenAll(1);
  world.Settle();
  for (uint32_t i = 0; i < 5; ++i) {
    world.at(0).PostSend(To(2, i), data, i);
    world.at(0).PostRecv(To(2, i), absl::MakeSpan(got), i);
  }
  world.at(1).PostRecv(To(0, 0), absl::MakeSpan(other), 50);
  world.Settle();
  world.Kill(2);
  REQUIRE(world.WaitCount(0, Event::kPeerLost, 1));
  REQUIRE(world.WaitCount(1, Event::kPeerLost, 1));
  const Log& log = world.log(0);
  const auto lost = std::find_if(log.begin(), log.end(),
                                 [](const Completion& c) { return c.event == Event::kPeerLost; });
  CHECK(lost->peer == 2);
  CHECK(!lost->text.empty());
  int before = 0;
  for (auto c = log.begin(); c != lost; ++c) {
    if (c->event == Event::kPeerUp) continue;
    CHECK(c->code == absl::StatusCode::kUnavailable);
    ++before;
  }
  CHECK(before == 10);
  world.at(0).PostSend(To(2, 9), data, 9);
  CHECK(world.Code(0, Event::kSent, 9) == absl::StatusCode::kUnavailable);
  CHECK(world.at(0).SendNote(2, 1, AsBytes("hello")).code() == absl::StatusCode::kUnavailable);
  world.at(0).PostSend(To(1, 0), data, 50);
  CHECK(world.Code(1, Event::kReceived, 50) == kOk);
  CHECK(world.Count(1, Event::kPeerLost) == 1);
}
}  // namespace
}  // namespace shunt::transport::testing
