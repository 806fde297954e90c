// The client's rings against the daemon's end of them, in one process.
#include "client/src/submission_ring.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/core/clock.h"
#include "runtime/core/unix_socket.h"
#include "tests/support/temp_dir.h"

namespace shunt::client {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kEntries = 16;

class World {
 public:
  World() {
    auto listener = UnixListener::Listen(dir_ / "d.lease", {.type = SocketType::kSeqPacket});
    REQUIRE(listener.ok());
    auto lease = LeaseConnection::Connect(dir_ / "d.lease");
    REQUIRE(lease.ok());
    lease_ = *std::move(lease);
    auto accepted = listener->Accept();
    REQUIRE(accepted.ok());
    daemon_socket_ = *std::move(accepted);

    const size_t bytes = ring::BytesFor(kEntries);
    auto memory = MakeSealedMemfd("ring", bytes);
    auto mapping = Mapping::Map(memory->get(), bytes);
    REQUIRE(mapping.ok());
    mapping_ = *std::move(mapping);
    ring::Initialize(mapping_.data(), kEntries);
    server = ring::RingServer(mapping_.data(), kEntries);
    ring = std::make_unique<SubmissionRing>(lease_.get(), [this](const ring::Completion& c) {
      ended[c.token % ended.size()] = c.code + 1;
    });
    auto doorbell = MakeEventFd();
    REQUIRE(ring->Attach(memory->get(), *std::move(doorbell), kEntries).ok());
  }

  // A submission that completes; its token.
  uint64_t Submit() {
    ring::Submission s{};
    s.token = ring->NextToken();
    s.opcode = static_cast<uint32_t>(ring::Opcode::kTransfer);
    REQUIRE(ring->Submit(s).ok());
    return s.token;
  }
  void Take() {
    ring::Submission s;
    while (*server.Pop(&s)) {
    }
  }
  std::function<bool()> Done(uint64_t token) {
    return [this, token] { return ended[token % ended.size()] != 0; };
  }
  void Die() { daemon_socket_.Reset(); }

  ring::RingServer server;
  std::unique_ptr<SubmissionRing> ring;
  std::array<std::atomic<int>, 256> ended{};

 private:
  testing::TempDir dir_;
  std::unique_ptr<LeaseConnection> lease_;
  UniqueFd daemon_socket_;
  Mapping mapping_;
};

TEST_CASE("a completion ends the wait for its token, with its code") {
  World world;
  const uint64_t token = world.Submit();
  CHECK_FALSE(world.ring->Wait(world.Done(token), NowNs() + 1'000'000));
  world.Take();
  world.server.Complete(token, 5);
  CHECK(world.ring->Wait(world.Done(token), kNeverNs));
  CHECK(world.ended[token] == 6);
}

TEST_CASE("threads that wait for different tokens each end with their own") {
  World world;
  constexpr int kThreads = 6;
  std::vector<uint64_t> tokens;
  for (int i = 0; i < kThreads; ++i) tokens.push_back(world.Submit());
  world.Take();
  std::atomic<int> returned{0};
  std::vector<std::thread> threads;
  for (const uint64_t token : tokens) {
    threads.emplace_back([&, token] {
      if (world.ring->Wait(world.Done(token), NowNs() + 30'000'000'000)) ++returned;
    });
  }
  // The last first: whoever looks at the ring then works for the others.
  for (int i = kThreads - 1; i >= 0; --i) {
    world.server.Complete(tokens[static_cast<size_t>(i)], 0);
    threads[static_cast<size_t>(i)].join();
    CHECK(returned == kThreads - i);
  }
}

TEST_CASE("a thread that only submits collects for those that wait") {
  World world;
  const uint64_t token = world.Submit();
  world.Take();
  std::atomic<bool> found{false};
  std::thread waiter(
      [&] { found = world.ring->Wait(world.Done(token), NowNs() + 30'000'000'000); });
  world.server.Complete(token, 0);
  for (int i = 0; i < 3; ++i) world.Submit();
  waiter.join();
  CHECK(found);
}

TEST_CASE("what is in flight is bounded, in words, until something ends") {
  World world;
  std::vector<uint64_t> tokens;
  for (uint32_t i = 0; i < kEntries; ++i) {
    tokens.push_back(world.Submit());
    world.Take();
  }
  ring::Submission more{};
  more.opcode = static_cast<uint32_t>(ring::Opcode::kTransfer);
  const absl::Status refused = world.ring->Submit(more);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(std::string(refused.message()).find("16 asynchronous operations and transfers") == 0);
  world.server.Complete(tokens[3], 0);
  CHECK(world.ring->Submit(more).ok());
}

TEST_CASE("a daemon that dies ends the waits, after what it had completed") {
  World world;
  const uint64_t completed = world.Submit();
  const uint64_t lost = world.Submit();
  world.Take();
  std::atomic<bool> found{false};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] { found = found || world.ring->Wait(world.Done(lost), kNeverNs); });
  }
  world.server.Complete(completed, 0);
  world.Die();
  for (std::thread& waiter : waiters) waiter.join();
  CHECK_FALSE(found);
  CHECK(world.ring->gone());
  CHECK(world.ring->Wait(world.Done(completed), kNeverNs));
}

}  // namespace
}  // namespace shunt::client
