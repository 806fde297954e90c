#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/unix_socket.h"
#include "tests/support/fds.h"
#include "tests/support/temp_dir.h"

namespace shunt {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_CASE("descriptors arrive with their message, close-on-exec") {
  const auto type = GENERATE(SocketType::kStream, SocketType::kSeqPacket);
  const auto [a, b] = *MakeSocketPair(type);
  const UniqueFd sent = *MakeEventFd();
  const int fds[] = {sent.get(), sent.get()};
  REQUIRE(SendWithFds(a.get(), Bytes("take"), fds).ok());
  std::byte buffer[64];
  const Received got = *RecvWithFds(b.get(), buffer);
  CHECK(Text({buffer, got.bytes}) == "take");
  REQUIRE(got.fds.size() == 2);
  CHECK((::fcntl(got.fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
  SignalEventFd(got.fds[0].get());
  CHECK(DrainEventFd(sent.get()) == 1);
}

TEST_CASE("more descriptors than expected are an error and all are closed") {
  const auto [a, b] = *MakeSocketPair(SocketType::kSeqPacket);
  const UniqueFd sent = *MakeEventFd();
  const int before = testing::CountOpenFds();
  std::byte buffer[64];
  SECTION("some more") {
    const int fds[] = {sent.get(), sent.get(), sent.get()};
    REQUIRE(SendWithFds(a.get(), Bytes("x"), fds).ok());
    CHECK(RecvWithFds(b.get(), buffer, 2).status().code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("more than any message may carry") {
    const std::vector<int> fds(kMaxFdsPerMessage + 1, sent.get());
    CHECK(SendWithFds(a.get(), Bytes("x"), fds).code() == absl::StatusCode::kInvalidArgument);
    // A hostile peer does not use our sender.
    std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
    char byte = 'x';
    iovec piece{&byte, 1};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
    REQUIRE(::sendmsg(a.get(), &message, 0) == 1);
    CHECK(RecvWithFds(b.get(), buffer).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(testing::CountOpenFds() == before);
}

TEST_CASE("a message longer than the buffer is an error and its descriptors are closed") {
  const auto [a, b] = *MakeSocketPair(SocketType::kSeqPacket);
  const UniqueFd sent = *MakeEventFd();
  const int before = testing::CountOpenFds();
  const int fds[] = {sent.get()};
  REQUIRE(SendWithFds(a.get(), Bytes(std::string(65, 'y')), fds).ok());
  std::byte buffer[64];
  CHECK(RecvWithFds(b.get(), buffer).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(testing::CountOpenFds() == before);
}

TEST_CASE("a long payload goes out whole on a stream, its descriptors once") {
  const auto [a, b] = *MakeSocketPair(SocketType::kStream);
  const UniqueFd sent = *MakeEventFd();
  const std::string payload(1 << 20, 'z');
  absl::Status send_status;
  std::thread sender([&, from = a.get()] {
    const int fds[] = {sent.get()};
    send_status = SendWithFds(from, Bytes(payload), fds);
  });
  size_t bytes = 0;
  size_t fds = 0;
  std::vector<std::byte> buffer(4096);
  while (bytes < payload.size()) {
    const auto got = RecvWithFds(b.get(), buffer);
    REQUIRE(got.ok());
    REQUIRE_FALSE(got->closed);
    bytes += got->bytes;
    fds += got->fds.size();
  }
  sender.join();
  CHECK(send_status.ok());
  CHECK(bytes == payload.size());
  CHECK(fds == 1);
}

TEST_CASE("a closed peer is seen by the receiver and is no signal for the sender") {
  const auto type = GENERATE(SocketType::kStream, SocketType::kSeqPacket);
  auto [a, b] = *MakeSocketPair(type);
  a.Reset();
  std::byte buffer[8];
  CHECK(RecvWithFds(b.get(), buffer)->closed);
  CHECK(SendWithFds(b.get(), Bytes("x")).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a non-blocking socket says when nothing is there and when it is full") {
  const auto [a, b] = *MakeSocketPair(SocketType::kSeqPacket);
  REQUIRE(::fcntl(a.get(), F_SETFL, O_NONBLOCK) == 0);
  std::byte buffer[8];
  const Received nothing = *RecvWithFds(a.get(), buffer);
  CHECK(nothing.would_block);
  CHECK_FALSE(nothing.closed);
  absl::Status status;
  while (status.ok()) status = SendWithFds(a.get(), Bytes("x"));
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("the peer's credentials and pidfd are those of the process that connected") {
  const testing::TempDir dir;
  UnixListener listener = *UnixListener::Listen(dir / "s", {});
  int hold[2];
  REQUIRE(::pipe2(hold, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(hold[1]);
    const auto connection = ConnectUnix(dir / "s", SocketType::kStream);
    char c;
    [[maybe_unused]] const ssize_t end = ::read(hold[0], &c, 1);  // until the parent lets go
    ::_exit(connection.ok() ? 0 : 1);
  }
  pollfd p{listener.fd(), POLLIN, 0};
  REQUIRE(::poll(&p, 1, 10'000) == 1);
  const UniqueFd connection = *listener.Accept();
  const PeerCredentials peer = *GetPeerCredentials(connection.get());
  CHECK(peer.pid == child);
  CHECK(peer.uid == ::getuid());
  CHECK(peer.gid == ::getgid());
  REQUIRE(peer.pidfd.valid());
  p = {peer.pidfd.get(), POLLIN, 0};
  CHECK(::poll(&p, 1, 0) == 0);
  ::close(hold[1]);
  CHECK(::poll(&p, 1, 10'000) == 1);
  ::waitpid(child, nullptr, 0);
  ::close(hold[0]);
  CHECK_FALSE(GetPeerCredentials(hold[0]).ok());
}

}  // namespace
}  // namespace shunt
