// What every carrier must do. Buffers stand before their world: what a test does not wait for may
// be on its way until the world ends.
#include <catch2/catch.hpp>
#include <deque>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "tests/transport/messages.h"
#include "tests/transport/worlds.h"

namespace shunt::transport::testing {
namespace {

constexpr size_t kSizes[] = {0, 1, 8, 8191, 8192, 8193, 70'000, (1 << 20) + 13};
constexpr auto kOk = absl::StatusCode::kOk;

TEMPLATE_LIST_TEST_CASE("messages of any size arrive, whichever side posts first", "", Worlds) {
  TestType world(2);
  world.OpenAll(1);
  const bool recv_first = GENERATE(true, false);
  uint32_t slice = 0;
  for (size_t bytes : kSizes) {
    const Buffer sent = Pattern(bytes, bytes);
    Buffer got(bytes);
    if (recv_first) {
      world.at(1).PostRecv(To(0, slice), absl::MakeSpan(got), slice);
      world.Settle();
      world.at(0).PostSend(To(1, slice), sent, slice);
    } else {
      world.at(0).PostSend(To(1, slice), sent, slice);
      world.Settle();
      world.at(1).PostRecv(To(0, slice), absl::MakeSpan(got), slice);
    }
    REQUIRE(world.Code(1, Event::kReceived, slice) == kOk);
    REQUIRE(world.Code(0, Event::kSent, slice) == kOk);
    REQUIRE(Same(got, sent));
    ++slice;
  }
  const PeerCounters counters = world.at(0).counters(1);
  CHECK(counters.messages_sent == std::size(kSizes));
  CHECK(counters.payload_bytes_sent ==
        std::accumulate(std::begin(kSizes), std::end(kSizes), size_t{0}));
  CHECK(world.at(1).counters(0).messages_received == std::size(kSizes));
}

TEMPLATE_LIST_TEST_CASE("memory may lie in as many places as the carrier says", "", Worlds) {
  struct Pair {
    Buffer sent, got;
    std::vector<iovec> from, to;
  };
  // Places of a few bytes, and of many; both sides cut differently.
  constexpr size_t kBytes[] = {1000, 9000, 1000, 9000, 70'000, 70'000, 3'000'017};
  std::deque<Pair> pairs;
  TestType world(2);
  world.OpenAll(1);
  const size_t sends = world.at(0).limits().send_places_max;
  const size_t recvs = world.at(1).limits().recv_places_max;
  for (size_t bytes : kBytes) {
    Pair& pair = pairs.emplace_back();
    pair.sent = Pattern(bytes, pairs.size());
    pair.got.resize(bytes);
    pair.from = Backwards(&pair.sent, sends);
    pair.to = Backwards(&pair.got, recvs - recvs / 7);
    const auto slice = static_cast<uint32_t>(pairs.size());
    world.at(1).PostRecv(To(0, slice), pair.to, slice);
    world.at(0).PostSend(To(1, slice), pair.from, slice);
  }
  for (uint32_t slice = 1; slice <= pairs.size(); ++slice) {
    REQUIRE(world.Code(1, Event::kReceived, slice) == kOk);
    REQUIRE(world.Code(0, Event::kSent, slice) == kOk);
    REQUIRE(Same(Payload(pairs[slice - 1].to), Payload(pairs[slice - 1].from)));
  }
}

TEMPLATE_LIST_TEST_CASE("what is posted before the other side opens, or is up, waits", "", Worlds) {
  const Buffer small = Pattern(10, 1), large = Pattern(100'000, 2);
  Buffer got_small(10), got_large(100'000), back(50'000);
  TestType world(2);
  world.Open(0, 1);
  world.at(0).PostSend(To(1, 0), small, 0);
  world.at(0).PostSend(To(1, 1), large, 1);
  world.at(0).PostRecv(To(1, 2), absl::MakeSpan(back), 2);
  REQUIRE(world.at(0).SendNote(1, 1, AsBytes("early")).ok());
  world.Settle();
  CHECK(world.Count(0, Event::kSent) == 0);
  CHECK(world.Count(1, Event::kNote) == 0);
  world.Open(1, 1);
  world.at(1).PostRecv(To(0, 0), absl::MakeSpan(got_small), 0);
  world.at(1).PostRecv(To(0, 1), absl::MakeSpan(got_large), 1);
  world.at(1).PostSend(To(0, 2), absl::MakeConstSpan(large).subspan(0, 50'000), 2);
  REQUIRE(world.Code(1, Event::kReceived, 0) == kOk);
  REQUIRE(world.Code(1, Event::kReceived, 1) == kOk);
  REQUIRE(world.Code(0, Event::kReceived, 2) == kOk);
  REQUIRE(world.WaitCount(1, Event::kNote, 1));
  CHECK(Same(got_small, small));
  CHECK(Same(got_large, large));
}

TEMPLATE_LIST_TEST_CASE("many tags posted in different orders are matched by tag", "", Worlds) {
  constexpr int kMessages = 300;
  std::vector<Buffer> sent(kMessages), got(kMessages);
  TestType world(3);
  world.OpenAll(1);
  std::vector<int> sends(kMessages), recvs(kMessages);
  std::iota(sends.begin(), sends.end(), 0);
  recvs = sends;
  std::mt19937 random(3);
  std::shuffle(sends.begin(), sends.end(), random);
  std::shuffle(recvs.begin(), recvs.end(), random);
  const auto message = [](PeerId peer, int i) {
    Message m = To(peer, static_cast<uint32_t>(i % 5));
    m.tag.sequence = static_cast<uint64_t>(i / 50);
    m.tag.channel = static_cast<uint32_t>(i / 5 % 2);
    m.tag.step = static_cast<uint32_t>(i / 10 % 5);
    m.service_class = static_cast<Class>(i % 3);
    return m;
  };
  for (int i = 0; i < kMessages; ++i) {
    const size_t bytes = i % 3 == 0 ? 20'000 + i : static_cast<size_t>(i) * 7;
    sent[i] = Pattern(bytes, i);
    got[i].resize(bytes);
  }
  for (int i = 0; i < kMessages; ++i) {
    const int s = sends[i], r = recvs[i];
    world.at(s % 2).PostSend(message(2, s), sent[s], s);
    world.at(2).PostRecv(message(r % 2, r), absl::MakeSpan(got[r]), r);
  }
  REQUIRE(world.WaitCount(2, Event::kReceived, kMessages));
  REQUIRE(world.WaitCount(0, Event::kSent, kMessages / 2));
  REQUIRE(world.WaitCount(1, Event::kSent, kMessages / 2));
  CHECK(Same(got, sent));
  for (int i = 0; i < kMessages; ++i) CHECK(world.Code(2, Event::kReceived, i) == kOk);
}

TEMPLATE_LIST_TEST_CASE("floods in both directions don't deadlock", "", Worlds) {
  constexpr int kMessages = 40;
  const Buffer data = Pattern(1 << 20, 1);
  std::vector<Buffer> got(2 * kMessages, Buffer(1 << 20));
  TestType world(2);
  world.OpenAll(1);
  for (int node = 0; node < 2; ++node) {
    for (int i = 0; i < kMessages; ++i) world.at(node).PostSend(To(1 - node, i), data, i);
  }
  for (int node = 0; node < 2; ++node) {
    for (int i = 0; i < kMessages; ++i) {
      world.at(node).PostRecv(To(1 - node, i), absl::MakeSpan(got[node * kMessages + i]), i);
    }
  }
  for (int node = 0; node < 2; ++node) {
    REQUIRE(world.WaitCount(node, Event::kReceived, kMessages));
    REQUIRE(world.WaitCount(node, Event::kSent, kMessages));
  }
  for (const Buffer& buffer : got) CHECK(Same(buffer, data));
}

TEMPLATE_LIST_TEST_CASE("more small messages than slots wait, whatever order they are taken in", "",
                        Worlds) {
  constexpr int kMessages = 500;
  std::vector<Buffer> sent(kMessages), got(kMessages, Buffer(100));
  TestType world(2);
  world.OpenAll(1);
  for (int i = 0; i < kMessages; ++i) {
    sent[i] = Pattern(100, i);
    world.at(0).PostSend(To(1, i), sent[i], i);
  }
  world.Settle();
  CHECK(world.Count(0, Event::kSent) == static_cast<int>(world.at(0).limits().eager_slots));
  CHECK(world.at(0).counters(1).credit_stalls >= kMessages - world.at(0).limits().eager_slots);
  for (int i = kMessages - 1; i >= 0; --i) {
    world.at(1).PostRecv(To(0, i), absl::MakeSpan(got[i]), i);
  }
  REQUIRE(world.WaitCount(1, Event::kReceived, kMessages));
  REQUIRE(world.WaitCount(0, Event::kSent, kMessages));
  CHECK(Same(got, sent));
}

TEMPLATE_LIST_TEST_CASE("a message that is longer than a slot takes several", "", Worlds) {
  Engine::Options options;
  options.limits.eager_bytes = 64 << 10;
  options.limits.eager_slots = 20;  // for two of these
  constexpr int kMessages = 3;
  std::vector<Buffer> sent(kMessages), got(kMessages, Buffer(64 << 10));
  TestType world(2, options);
  world.OpenAll(1);
  for (int round = 0; round < 3; ++round) {
    for (int node = 0; node < 2; ++node) world.log(node).clear();
    for (int i = 0; i < kMessages; ++i) {
      sent[i] = Pattern(64 << 10, round * kMessages + i);
      world.at(0).PostSend(To(1, round * kMessages + i), sent[i], i);
    }
    world.Settle();
    CHECK(world.Count(0, Event::kSent) == 2);
    for (int i = 0; i < kMessages; ++i) {
      world.at(1).PostRecv(To(0, round * kMessages + i), absl::MakeSpan(got[i]), i);
    }
    REQUIRE(world.WaitCount(1, Event::kReceived, kMessages));
    REQUIRE(world.WaitCount(0, Event::kSent, kMessages));
    CHECK(Same(got, sent));
    world.Settle();  // the slots are back
  }
}

TEMPLATE_LIST_TEST_CASE("slots come back: small messages go on without stalls", "", Worlds) {
  uint32_t data = 0;
  TestType world(2);
  world.OpenAll(1);
  for (uint32_t i = 0; i < 200; ++i) {
    uint32_t got = 0;
    world.at(1).PostRecv(To(0, i), absl::MakeSpan(reinterpret_cast<std::byte*>(&got), 4), i);
    data = i;
    world.at(0).PostSend(To(1, i), absl::MakeSpan(reinterpret_cast<std::byte*>(&data), 4), i);
    REQUIRE(world.Code(1, Event::kReceived, i) == kOk);
    REQUIRE(world.Code(0, Event::kSent, i) == kOk);
    REQUIRE(got == i);
  }
  CHECK(world.at(0).counters(1).eager_sent > 190);
}

TEMPLATE_LIST_TEST_CASE("windows of headers bound what waits, and all arrive", "", Worlds) {
  Engine::Options options;
  options.limits.headers_waiting_max = 4;
  options.limits.eager_slots = 2;
  constexpr int kMessages = 60;
  std::vector<Buffer> sent(kMessages), got(kMessages);
  TestType world(2, options);
  world.OpenAll(1);
  for (int i = 0; i < kMessages; ++i) {
    sent[i] = Pattern(i % 2 == 0 ? 9'000 : 90, i);
    got[i].resize(sent[i].size());
  }
  const bool recv_first = GENERATE(true, false);
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < kMessages; ++i) {
      if ((half == 0) == recv_first) {
        world.at(1).PostRecv(To(0, i), absl::MakeSpan(got[i]), i);
      } else {
        world.at(0).PostSend(To(1, i), sent[i], i);
      }
    }
    world.Settle();
  }
  REQUIRE(world.WaitCount(1, Event::kReceived, kMessages));
  REQUIRE(world.WaitCount(0, Event::kSent, kMessages));
  CHECK(Same(got, sent));
}

TEMPLATE_LIST_TEST_CASE("a receiver that posts late holds up no other communicator", "", Worlds) {
  const Buffer small = Pattern(50, 1), large = Pattern(1 << 20, 2);
  std::vector<Buffer> late(400);
  TestType world(2);
  world.OpenAll(1);
  world.OpenAll(2);
  for (int i = 0; i < 400; ++i) {
    world.at(0).PostSend(To(1, i, 1), i % 4 == 0 ? large : small, 1000 + i);
  }
  world.Settle();
  for (int i = 0; i < 40; ++i) {
    const Buffer& data = i % 2 == 0 ? large : small;
    Buffer got(data.size());
    world.at(0).PostSend(To(1, i, 2), data, i);
    world.at(1).PostRecv(To(0, i, 2), absl::MakeSpan(got), i);
    REQUIRE(world.Code(1, Event::kReceived, i) == kOk);
    REQUIRE(Same(got, data));
  }
  for (int i = 0; i < 400; ++i) {
    late[i].resize(i % 4 == 0 ? large.size() : small.size());
    world.at(1).PostRecv(To(0, i, 1), absl::MakeSpan(late[i]), 1000 + i);
  }
  REQUIRE(world.WaitCount(1, Event::kReceived, 440));
  for (int i = 0; i < 400; ++i) CHECK(Same(late[i], i % 4 == 0 ? large : small));
}

TEMPLATE_LIST_TEST_CASE("a message of another length ends both sides", "", Worlds) {
  const auto [sent_bytes, recv_bytes] = GENERATE(table<size_t, size_t>(
      {{100, 99}, {100, 0}, {0, 1}, {100'000, 100'001}, {100'000, 10}, {10, 100'000}}));
  const Buffer sent = Pattern(sent_bytes, 1);
  Buffer got(recv_bytes);
  Buffer after(sent_bytes);
  TestType world(2);
  world.OpenAll(1);
  const bool recv_first = GENERATE(true, false);
  if (recv_first) {
    world.at(1).PostRecv(To(0, 0), absl::MakeSpan(got), 0);
    world.Settle();
  }
  world.at(0).PostSend(To(1, 0), sent, 0);
  world.Settle();
  if (!recv_first) world.at(1).PostRecv(To(0, 0), absl::MakeSpan(got), 0);
  CHECK(world.Code(1, Event::kReceived, 0) == absl::StatusCode::kInvalidArgument);
  // A small message is sent by the time anyone can see that, unless a grant was there already.
  const bool seen = sent_bytes > 8192 || (recv_first && recv_bytes > 8192);
  CHECK(world.Code(0, Event::kSent, 0) == (seen ? absl::StatusCode::kInvalidArgument : kOk));
  // The connection goes on.
  for (uint32_t i = 1; i < 40; ++i) {
    world.at(1).PostRecv(To(0, i), absl::MakeSpan(after), i);
    world.at(0).PostSend(To(1, i), sent, i);
    REQUIRE(world.Code(1, Event::kReceived, i) == kOk);
  }
  CHECK(Same(after, sent));
}

TEMPLATE_LIST_TEST_CASE("grants that small messages of another length have crossed are void", "",
                        Worlds) {
  Engine::Options options;
  options.limits.headers_waiting_max = 4;
  options.limits.eager_slots = 4;
  const Buffer small = Pattern(100, 1), large = Pattern(100'000, 2);
  Buffer never(100'000), got(100'000);
  TestType world(2, options);
  world.OpenAll(1);
  world.Settle();
  // Each side says something before it has heard the other. More of them than grants may wait: a
  // sender that kept them would take the next ones for a breach.
  for (uint32_t i = 0; i < 20; ++i) {
    world.at(0).PostSend(To(1, i), small, i);
    world.at(1).PostRecv(To(0, i), absl::MakeSpan(never), i);
    world.Settle();
    CHECK(world.Code(0, Event::kSent, i) == kOk);
    CHECK(world.Code(1, Event::kReceived, i) == absl::StatusCode::kInvalidArgument);
  }
  CHECK(never == Buffer(100'000));
  world.at(1).PostRecv(To(0, 50), absl::MakeSpan(got), 50);
  world.Settle();
  world.at(0).PostSend(To(1, 50), large, 50);
  REQUIRE(world.Code(1, Event::kReceived, 50) == kOk);
  CHECK(Same(got, large));
  for (int node = 0; node < 2; ++node) {
    CHECK(world.at(node).counters(1 - node).protocol_errors == 0);
    CHECK(world.Count(node, Event::kPeerLost) == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("a header of an operation that nobody posted is told once", "", Worlds) {
  const size_t bytes = GENERATE(size_t{10}, size_t{100'000});
  const Buffer data(bytes);
  std::vector<Buffer> got(10, Buffer(bytes));
  TestType world(2);
  world.OpenAll(1);
  for (uint32_t i = 0; i < 10; ++i) world.at(0).PostSend(To(1, i), data, i);
  REQUIRE(world.WaitCount(1, Event::kStray, 1));
  world.Settle();
  REQUIRE(world.Count(1, Event::kStray) == 1);
  const auto stray = std::find_if(world.log(1).begin(), world.log(1).end(),
                                  [](const Completion& c) { return c.event == Event::kStray; });
  CHECK(stray->peer == 0);
  CHECK(stray->tag.communicator == 1);
  CHECK(stray->tag.sequence == 1);
  CHECK(stray->signature == 5);
  // It was only early: the messages are still there.
  for (uint32_t i = 0; i < 10; ++i) world.at(1).PostRecv(To(0, i), absl::MakeSpan(got[i]), i);
  REQUIRE(world.WaitCount(1, Event::kReceived, 10));
  CHECK(world.Count(1, Event::kStray) == 1);
  CHECK(world.Count(0, Event::kStray) == 0);
}

TEMPLATE_LIST_TEST_CASE("calls that differ are told and never matched", "", Worlds) {
  const size_t bytes = GENERATE(size_t{10}, size_t{100'000});
  const Buffer data = Pattern(bytes, 1);
  Buffer got(bytes);
  TestType world(2);
  world.OpenAll(1);
  const bool recv_first = GENERATE(true, false);
  for (int turn = 0; turn < 2; ++turn) {
    for (uint32_t i = 0; i < 3; ++i) {
      if ((turn == 0) == recv_first) {
        world.at(1).PostRecv(To(0, i, 1, 66), absl::MakeSpan(got), i);
      } else {
        world.at(0).PostSend(To(1, i, 1, 55), data, i);
      }
    }
    world.Settle();
  }
  CHECK(world.Count(1, Event::kReceived) == 0);
  CHECK(Same(got, Buffer(bytes)));
  REQUIRE(world.Count(1, Event::kStray) == 1);
  for (const Completion& c : world.log(1)) {
    if (c.event == Event::kStray) CHECK(c.signature == 55);
  }
  if (bytes > 8192) {  // a grant told the sender
    REQUIRE(world.Count(0, Event::kStray) == 1);
    for (const Completion& c : world.log(0)) {
      if (c.event == Event::kStray) CHECK(c.signature == 66);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("notes arrive in order and are bounded", "", Worlds) {
  Engine::Options options;
  options.limits.headers_waiting_max = 50;
  TestType world(2, options);
  world.OpenAll(1);
  world.Settle();
  world.SetQuiet(1, true);
  int sent = 0;
  absl::Status status;
  while ((status = world.at(0).SendNote(1, 1, AsBytes("note " + std::to_string(sent)))).ok()) {
    ++sent;
    REQUIRE(sent <= 50);
    if (sent % 10 == 0) world.Settle();
  }
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(sent == 50);
  world.SetQuiet(1, false);
  REQUIRE(world.WaitCount(1, Event::kNote, 50));
  world.Settle();
  for (int i = 0; i < 30; ++i, ++sent) {
    REQUIRE(world.at(0).SendNote(1, 1, AsBytes("note " + std::to_string(sent))).ok());
  }
  REQUIRE(world.WaitCount(1, Event::kNote, 80));
  int next = 0;
  for (const Completion& c : world.log(1)) {
    if (c.event != Event::kNote) continue;
    CHECK(c.text == "note " + std::to_string(next++));
    CHECK(c.peer == 0);
    CHECK(c.tag.communicator == 1);
  }
  CHECK(world.at(0).SendNote(1, 1, AsBytes(std::string(1025, 'x'))).code() ==
        absl::StatusCode::kInvalidArgument);
}

TEMPLATE_LIST_TEST_CASE("posts that can't be served say why", "", Worlds) {
  Buffer data(10);
  TestType world(2);
  world.Open(0, 1);
  CHECK(world.at(0).Open(1, {1}).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(world.at(0).Open(2, {77}).code() == absl::StatusCode::kNotFound);
  world.at(0).PostSend(To(77, 0), data, 1);
  world.at(0).PostSend(To(1, 0, 3), data, 2);
  world.at(0).PostRecv(To(1, 0), absl::MakeSpan(data), 3);
  world.at(0).PostRecv(To(1, 0), absl::MakeSpan(data), 4);
  CHECK(world.Code(0, Event::kSent, 1) == absl::StatusCode::kNotFound);
  CHECK(world.Code(0, Event::kSent, 2) == absl::StatusCode::kFailedPrecondition);
  CHECK(world.Code(0, Event::kReceived, 4) == absl::StatusCode::kAlreadyExists);
  CHECK(world.Find(0, Event::kReceived, 3) == nullptr);
}

// Posts, closes and opens at random, against a model: every pair of posts that both sides made
// before either closed has arrived whole.
TEMPLATE_LIST_TEST_CASE("any order of calls moves the right bytes", "", Worlds) {
  const uint64_t seed = GENERATE(range(1, 9));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  Engine::Options options;
  options.limits.eager_bytes = random() % 2 == 0 ? 64 : 18'000;
  options.limits.eager_slots = 1 + random() % 4;
  options.limits.headers_waiting_max = 512;
  options.piece_bytes = 1 + random() % 5000;
  constexpr int kNodes = 3;
  struct Half {
    bool posted = false;
    Buffer buffer;
    std::vector<iovec> places;
  };
  struct Pair {
    int from, to;
    Message message;
    Half send, recv;
  };
  std::deque<Pair> pairs;
  TestType world(kNodes, options);
  uint64_t communicator = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    ++communicator;
    pairs.clear();
    for (int i = 0; i < 200; ++i) {
      Pair pair;
      pair.from = static_cast<int>(random() % kNodes);
      pair.to = static_cast<int>((pair.from + 1 + random() % (kNodes - 1)) % kNodes);
      pair.message = To(0, i, communicator);
      pair.message.service_class = static_cast<Class>(random() % 3);
      const size_t bytes = random() % 3 == 0 ? random() % 65 : random() % 20'000;
      pair.send.buffer = Pattern(bytes, random());
      pair.recv.buffer.resize(bytes);
      const Limits& limits = world.at(0).limits();
      pair.send.places =
          Backwards(&pair.send.buffer, 1 + random() % std::min<size_t>(5, limits.send_places_max));
      pair.recv.places =
          Backwards(&pair.recv.buffer, 1 + random() % std::min<size_t>(5, limits.recv_places_max));
      pairs.push_back(std::move(pair));
    }
    std::vector<int> halves(2 * pairs.size());
    std::iota(halves.begin(), halves.end(), 0);
    std::shuffle(halves.begin(), halves.end(), random);
    std::vector<bool> open(kNodes);
    size_t next = 0;
    for (int node = 0; node < kNodes; ++node) world.log(node).clear();
    for (int node = 0; node < kNodes; ++node) {
      if (random() % 2 == 0) world.Open(node, communicator), open[node] = true;
    }
    const size_t stop = epoch % 2 == 0 ? halves.size() : random() % halves.size();
    while (next < stop) {
      const int half = halves[next];
      Pair& pair = pairs[half / 2];
      const int node = half % 2 == 0 ? pair.from : pair.to;
      if (!open[node]) world.Open(node, communicator), open[node] = true;
      Message m = pair.message;
      m.peer = static_cast<PeerId>(half % 2 == 0 ? pair.to : pair.from);
      if (half % 2 == 0) {
        world.at(node).PostSend(m, pair.send.places, half);
        pair.send.posted = true;
      } else {
        world.at(node).PostRecv(m, pair.recv.places, half);
        pair.recv.posted = true;
      }
      ++next;
      for (uint64_t i = random() % 4; i > 0; --i) {
        Completion batch[3];
        const int polled = static_cast<int>(random() % kNodes);
        const size_t count = world.at(polled).Poll(absl::MakeSpan(batch));
        for (size_t k = 0; k < count; ++k) world.log(polled).push_back(batch[k]);
        if (random() % 2 == 0) world.Nudge();
      }
    }
    for (int node = 0; node < kNodes; ++node) {
      if (!open[node]) world.Open(node, communicator);
    }
    if (epoch % 2 == 0) {
      REQUIRE(world.Until([&] {
        int received = 0;
        for (int node = 0; node < kNodes; ++node) received += world.Count(node, Event::kReceived);
        return received == static_cast<int>(pairs.size());
      }));
      for (const Pair& pair : pairs) {
        REQUIRE(Same(Payload(pair.send.places), Payload(pair.recv.places)));
      }
    }
    for (int node = 0; node < kNodes; ++node) {
      world.at(node).Close(communicator);
      for (Pair& pair : pairs) {  // buffers are free now
        if (pair.from == node)
          std::fill(pair.send.buffer.begin(), pair.send.buffer.end(), std::byte{1});
        if (pair.to == node)
          std::fill(pair.recv.buffer.begin(), pair.recv.buffer.end(), std::byte{2});
      }
    }
    world.Settle();
    for (const Pair& pair : pairs) {
      REQUIRE(Same(pair.recv.buffer, Buffer(pair.recv.buffer.size(), std::byte{2})));
    }
    for (int node = 0; node < kNodes; ++node) {
      REQUIRE(world.Count(node, Event::kPeerLost) == 0);
      for (const Completion& c : world.log(node)) {
        if (c.event == Event::kSent || c.event == Event::kReceived) {
          REQUIRE((c.code == kOk || c.code == absl::StatusCode::kAborted));
        }
      }
    }
  }
}

}  // namespace
}  // namespace shunt::transport::testing
