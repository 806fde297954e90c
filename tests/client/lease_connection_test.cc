#include "client/src/lease_connection.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "client/src/fork_guard.h"
#include "client/src/wire.h"
#include "runtime/core/clock.h"
#include "runtime/core/unix_socket.h"
#include "tests/support/fds.h"
#include "tests/support/temp_dir.h"

namespace shunt::client {
namespace {

using namespace std::chrono_literals;

struct Packet {
  uint64_t id = 0;
  uint64_t region = 0;
};

// Stands where the daemon stands.
class FakeDaemon {
 public:
  FakeDaemon() {
    auto listener = UnixListener::Listen(path(), {.type = SocketType::kSeqPacket});
    REQUIRE(listener.ok());
    listener_ = *std::move(listener);
  }

  std::string path() const { return dir_ / "d.lease"; }

  std::unique_ptr<LeaseConnection> Connect() {
    auto client = LeaseConnection::Connect(path());
    REQUIRE(client.ok());
    auto accepted = listener_.Accept();
    REQUIRE(accepted.ok());
    socket_ = *std::move(accepted);
    return *std::move(client);
  }

  // The next FreeRegion request.
  Packet Receive() {
    std::vector<std::byte> buffer(4096);
    auto received = RecvWithFds(socket_.get(), buffer);
    if (!received.ok() || received->closed) return {};
    Packet packet;
    WireReader outer({reinterpret_cast<const char*>(buffer.data()), received->bytes});
    while (outer.Next()) {
      if (outer.field() == 1) packet.id = outer.varint();
      if (outer.field() != 5) continue;
      WireReader inner(outer.bytes());
      while (inner.Next()) {
        if (inner.field() == 2) packet.region = inner.varint();
      }
    }
    return packet;
  }

  void Reply(uint64_t id, int code = 0, const std::string& words = "",
             std::span<const int> fds = {}) {
    std::string packet;
    WireWriter w(&packet);
    w.Varint(1, id);
    w.Int(2, code);
    w.Bytes(3, words);
    (void)SendWithFds(socket_.get(), std::as_bytes(std::span(packet)), fds);
  }
  void ReplyBytes(const std::string& packet) {
    (void)SendWithFds(socket_.get(), std::as_bytes(std::span(packet)));
  }

  void Close() { socket_.Reset(); }

 private:
  testing::TempDir dir_;
  UnixListener listener_;
  UniqueFd socket_;
};

int64_t In(std::chrono::nanoseconds timeout) { return DeadlineAfterNs(timeout); }

TEST_CASE("nobody listens: UNAVAILABLE names the path") {
  auto connection = LeaseConnection::Connect("/nonexistent/shuntd.sock.lease");
  CHECK(connection.status().code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(connection.status().message()).find("/nonexistent/shuntd.sock.lease") !=
        std::string::npos);
}

TEST_CASE("replies find their callers in any order") {
  FakeDaemon daemon;
  auto client = daemon.Connect();
  constexpr int kCallers = 4;
  std::thread server([&] {
    for (int round = 0; round < 50; ++round) {
      std::vector<Packet> packets;
      for (int i = 0; i < kCallers; ++i) packets.push_back(daemon.Receive());
      for (int i = kCallers - 1; i >= 0; --i) {
        const auto& p = packets[static_cast<size_t>(i)];
        daemon.Reply(p.id, 5, std::to_string(p.region));
      }
    }
  });
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (uint64_t c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      for (uint64_t round = 0; round < 50; ++round) {
        const uint64_t region = 1 + c * 1000 + round;
        auto reply = client->Call(FreeRegion{region}, In(20s));
        if (reply.status().code() != absl::StatusCode::kNotFound ||
            reply.status().message() != std::to_string(region)) {
          ++wrong;
        }
      }
    });
  }
  for (auto& caller : callers) caller.join();
  server.join();
  CHECK(wrong == 0);
}

TEST_CASE("a long wait of one thread does not hold up another") {
  FakeDaemon daemon;
  auto client = daemon.Connect();
  absl::Status slow = absl::UnknownError("not yet");
  std::thread waiter([&] { slow = client->Call(FreeRegion{1}, In(20s)).status(); });
  const Packet first = daemon.Receive();
  std::thread server([&] { daemon.Reply(daemon.Receive().id); });
  CHECK(client->Call(FreeRegion{2}, In(20s)).ok());
  server.join();
  daemon.Reply(first.id);
  waiter.join();
  CHECK(slow.ok());
}

TEST_CASE("the end of the daemon ends all waiting calls at once") {
  FakeDaemon daemon;
  auto client = daemon.Connect();
  CHECK_FALSE(client->Gone());
  absl::Status a;
  absl::Status b;
  std::thread one([&] { a = client->Call(FreeRegion{1}, kNeverNs).status(); });
  std::thread two([&] { b = client->Call(FreeRegion{2}, kNeverNs).status(); });
  daemon.Receive();
  daemon.Receive();
  daemon.Close();
  one.join();
  two.join();
  CHECK(a.code() == absl::StatusCode::kUnavailable);
  CHECK(b.code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(a.message()).find("open a new one") != std::string::npos);
  CHECK(client->Gone());
  CHECK(client->Call(FreeRegion{3}, kNeverNs).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE(
    "a daemon that does not answer is given up at the deadline, and its late answer dropped") {
  FakeDaemon daemon;
  auto client = daemon.Connect();
  CHECK(client->Call(FreeRegion{1}, In(20ms)).status().code() == absl::StatusCode::kUnavailable);
  daemon.Reply(daemon.Receive().id, 13, "late");
  std::thread server([&] { daemon.Reply(daemon.Receive().id); });
  CHECK(client->Call(FreeRegion{2}, In(20s)).ok());
  server.join();
}

TEST_CASE("a reply that makes no sense ends the session") {
  FakeDaemon daemon;
  auto client = daemon.Connect();
  std::thread server([&] {
    daemon.Receive();
    daemon.ReplyBytes("\xff\xff\xff");
  });
  CHECK(client->Call(FreeRegion{1}, In(20s)).status().code() == absl::StatusCode::kUnavailable);
  server.join();
}

TEST_CASE("descriptors come with their reply, and none stay behind") {
  FakeDaemon daemon;
  auto client = daemon.Connect();
  const int before = testing::CountOpenFds();
  std::thread server([&] {
    int fds[2];
    REQUIRE(::pipe(fds) == 0);
    daemon.Reply(daemon.Receive().id, 0, "", {&fds[0], 2});
    ::close(fds[0]);
    ::close(fds[1]);
  });
  {
    auto reply = client->Call(FreeRegion{1}, In(20s));
    REQUIRE(reply.ok());
    CHECK(reply->fds.size() == 2);
  }
  server.join();
  CHECK(testing::CountOpenFds() == before);
}

TEST_CASE("shutting down tells the daemon and all callers") {
  FakeDaemon daemon;
  auto client = daemon.Connect();
  absl::Status waiting;
  std::thread caller([&] { waiting = client->Call(FreeRegion{1}, kNeverNs).status(); });
  daemon.Receive();
  client->Shutdown();
  caller.join();
  CHECK(waiting.code() == absl::StatusCode::kUnavailable);
  CHECK(daemon.Receive().id == 0);
}

}  // namespace
}  // namespace shunt::client
