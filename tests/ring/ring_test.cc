#include "runtime/ring/ring.h"

#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/core/fd.h"

namespace shunt::ring {
namespace {

constexpr uint32_t kServe = static_cast<uint32_t>(Opcode::kServe);
constexpr uint32_t kKick = static_cast<uint32_t>(Opcode::kKick);

// Both ends over one piece of memory, as in two processes.
struct Rings {
  explicit Rings(uint32_t entries) {
    fd = *MakeSealedMemfd("ring-test", BytesFor(entries));
    memory = *Mapping::Map(fd.get(), BytesFor(entries));
    Initialize(memory.data(), entries);
    client = std::move(*RingClient::Attach(memory.data(), memory.size(), entries));
    server = RingServer(memory.data(), entries);
    header = reinterpret_cast<Header*>(memory.data());
    server.Awake();
  }
  UniqueFd fd;
  Mapping memory;
  RingClient client;
  RingServer server;
  Header* header;
};

Submission Serve(uint64_t token) {
  Submission s{};
  s.opcode = kServe;
  s.token = token;
  return s;
}

TEST_CASE("entries arrive in order and unchanged") {
  Rings rings(4);
  for (uint64_t round = 0; round < 10; ++round) {
    Submission sent{};
    sent.token = round;
    sent.opcode = kKick;
    sent.channel = 7;
    sent.communicator_id = ~round;
    sent.sequence = round << 40;
    sent.deadline_ns = -5;
    REQUIRE(rings.client.Push(sent) == RingClient::Pushed::kDone);
    Submission got{};
    REQUIRE(*rings.server.Pop(&got));
    CHECK(got.token == sent.token);
    CHECK(got.opcode == sent.opcode);
    CHECK(got.channel == sent.channel);
    CHECK(got.communicator_id == sent.communicator_id);
    CHECK(got.sequence == sent.sequence);
    CHECK(got.deadline_ns == sent.deadline_ns);
    CHECK_FALSE(*rings.server.Pop(&got));
  }
}

TEST_CASE("a full submission ring refuses, and takes entries again when one was taken") {
  Rings rings(2);
  Submission kick{};
  kick.opcode = kKick;
  REQUIRE(rings.client.Push(kick) == RingClient::Pushed::kDone);
  REQUIRE(rings.client.Push(kick) == RingClient::Pushed::kDone);
  CHECK(rings.client.Push(kick) == RingClient::Pushed::kFull);
  Submission got{};
  REQUIRE(*rings.server.Pop(&got));
  CHECK(rings.client.Push(kick) == RingClient::Pushed::kDone);
}

TEST_CASE("an operation keeps its completion slot until the completion is collected") {
  Rings rings(2);
  Submission got{};
  for (uint64_t token : {11, 12}) {
    REQUIRE(rings.client.Push(Serve(token)) == RingClient::Pushed::kDone);
    REQUIRE(*rings.server.Pop(&got));
  }
  CHECK(rings.client.Push(Serve(13)) == RingClient::Pushed::kFull);
  CHECK(rings.server.Complete(12, 0));
  CHECK(rings.server.Complete(11, 9));
  // Completed, but nobody has collected: no slot yet.
  CHECK(rings.client.Push(Serve(13)) == RingClient::Pushed::kFull);
  Completion done[4];
  REQUIRE(rings.client.PopCompletions(done) == 2);
  CHECK(done[0].token == 12);
  CHECK(done[0].code == 0);
  CHECK(done[1].token == 11);
  CHECK(done[1].code == 9);
  CHECK(rings.client.outstanding() == 0);
  CHECK(rings.server.outstanding() == 0);
  CHECK(rings.client.Push(Serve(13)) == RingClient::Pushed::kDone);
}

TEST_CASE("the doorbell is asked for once, and only while the daemon sleeps") {
  Rings rings(4);
  CHECK(rings.client.Push(Serve(1)) == RingClient::Pushed::kDone);
  Submission got{};
  REQUIRE(*rings.server.Pop(&got));
  REQUIRE_FALSE(rings.server.MayNotSleep());
  CHECK(rings.client.Push(Serve(2)) == RingClient::Pushed::kDoneRingDoorbell);
  CHECK(rings.client.Push(Serve(3)) == RingClient::Pushed::kDone);
  CHECK(rings.server.MayNotSleep());
}

TEST_CASE("a tail that runs ahead of what fits breaks the session with words") {
  for (const uint32_t tail : {5u, 1000u, 0x80000000u, 0xffffffffu}) {
    Rings rings(4);
    rings.header->sq_tail.store(tail);
    Submission got{};
    const auto popped = rings.server.Pop(&got);
    REQUIRE(popped.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(popped.status().message()).find(std::to_string(tail)) != std::string::npos);
  }
}

TEST_CASE("the daemon does not believe the shared copies of its own indices") {
  Rings rings(4);
  REQUIRE(rings.client.Push(Serve(1)) == RingClient::Pushed::kDone);
  rings.header->sq_head.store(12345);
  rings.header->cq_tail.store(999);
  rings.header->entries = 4096;
  Submission got{};
  REQUIRE(*rings.server.Pop(&got));
  CHECK(got.token == 1);
  CHECK(rings.server.Complete(1, 0));
  CHECK(rings.header->sq_head.load() == 1);
  CHECK(rings.header->cq_tail.load() == 1);
}

TEST_CASE("more operations than may be outstanding break the session") {
  Rings rings(2);
  // A client that does not count: it writes entries and moves the tail itself.
  Submission got{};
  auto* slots = reinterpret_cast<Submission*>(rings.memory.data() + sizeof(Header));
  for (uint32_t i = 0; i < 2; ++i) {
    slots[i & 1] = Serve(i);
    rings.header->sq_tail.store(i + 1);
    REQUIRE(*rings.server.Pop(&got));
  }
  slots[0] = Serve(2);
  rings.header->sq_tail.store(3);
  CHECK(rings.server.Pop(&got).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a client that lies about what it collected is noticed, and hurts only itself") {
  Rings rings(2);
  rings.header->cq_head.store(77);
  REQUIRE(rings.client.Push(Serve(1)) == RingClient::Pushed::kDone);
  Submission got{};
  REQUIRE(*rings.server.Pop(&got));
  CHECK_FALSE(rings.server.Complete(1, 0));
}

TEST_CASE("sizes that are no power of two are refused") {
  for (const uint32_t entries : {0u, 1u, 3u, 100u, 8192u, 0xffffffffu}) {
    CHECK(CheckEntries(entries).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(CheckEntries(2).ok());
  CHECK(CheckEntries(4096).ok());
}

TEST_CASE("a client does not attach to memory that is no ring of that size") {
  Rings rings(4);
  CHECK_FALSE(RingClient::Attach(rings.memory.data(), rings.memory.size(), 8).ok());
  CHECK_FALSE(RingClient::Attach(rings.memory.data(), 64, 4).ok());
  rings.header->magic = 1;
  CHECK_FALSE(RingClient::Attach(rings.memory.data(), rings.memory.size(), 4).ok());
}

TEST_CASE("a sleeping client is woken by a completion") {
  Rings rings(4);
  REQUIRE(rings.client.Push(Serve(1)) == RingClient::Pushed::kDone);
  std::thread daemon([&] {
    Submission got{};
    REQUIRE(*rings.server.Pop(&got));
    rings.server.Complete(got.token, 0);
  });
  while (!rings.client.WaitForCompletion(std::chrono::nanoseconds::max())) {
  }
  daemon.join();
  Completion done[1];
  CHECK(rings.client.PopCompletions(done) == 1);
}

TEST_CASE("two threads exchange many operations and lose none") {
  constexpr uint64_t kOperations = 50'000;
  Rings rings(64);
  std::thread daemon([&] {
    uint64_t seen = 0;
    while (seen < kOperations) {
      Submission got{};
      const auto popped = rings.server.Pop(&got);
      REQUIRE(popped.ok());
      if (!*popped) {
        std::this_thread::yield();
        continue;
      }
      if (got.token != seen) FAIL("token " << got.token << " in place of " << seen);
      if (!rings.server.Complete(got.token, static_cast<int32_t>(seen % 17))) FAIL("no room");
      ++seen;
    }
  });
  uint64_t sent = 0;
  uint64_t collected = 0;
  Completion done[16];
  while (collected < kOperations) {
    if (sent < kOperations && rings.client.Push(Serve(sent)) != RingClient::Pushed::kFull) ++sent;
    const size_t count = rings.client.PopCompletions(done);
    for (size_t i = 0; i < count; ++i) {
      if (done[i].token != collected || done[i].code != static_cast<int32_t>(collected % 17)) {
        FAIL("completion " << done[i].token << " in place of " << collected);
      }
      ++collected;
    }
    if (count == 0) std::this_thread::yield();
  }
  daemon.join();
  CHECK(rings.client.outstanding() == 0);
}

// Each side sleeps whenever there is nothing: a lost wake-up would hang here.
TEST_CASE("sleeping and waking lose no submission") {
  constexpr uint64_t kOperations = 5'000;
  Rings rings(4);
  const UniqueFd doorbell = *MakeEventFd();
  std::thread daemon([&] {
    uint64_t seen = 0;
    while (seen < kOperations) {
      Submission got{};
      if (*rings.server.Pop(&got)) {
        rings.server.Complete(got.token, 0);
        ++seen;
        continue;
      }
      if (rings.server.MayNotSleep()) {
        rings.server.Awake();
        continue;
      }
      while (DrainEventFd(doorbell.get()) == 0) std::this_thread::yield();
    }
  });
  Completion done[4];
  for (uint64_t i = 0; i < kOperations; ++i) {
    RingClient::Pushed pushed;
    while ((pushed = rings.client.Push(Serve(i))) == RingClient::Pushed::kFull) {
    }
    if (pushed == RingClient::Pushed::kDoneRingDoorbell) SignalEventFd(doorbell.get());
    while (!rings.client.WaitForCompletion(std::chrono::nanoseconds::max())) {
    }
    REQUIRE(rings.client.PopCompletions(done) == 1);
  }
  daemon.join();
}

}  // namespace
}  // namespace shunt::ring
