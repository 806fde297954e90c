// Descriptors of clients are closed by somebody who may wait.
#include "daemon/client_fd.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "runtime/core/clock.h"

namespace shunt::daemon {
namespace {

// The two ends of a pipe: the reading one ends when the writing one is closed.
struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    reading.Reset(ends[0]);
    writing.Reset(ends[1]);
  }
  // Waits for the writing end's close.
  bool Ended() const {
    char byte;
    return ::read(reading.get(), &byte, 1) == 0;
  }
  UniqueFd reading, writing;
};

// Closing it waits for half a minute, as its peer takes in nothing.
UniqueFd Lingering(UniqueFd* peer) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listener.get(), place, size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), place, &size) == 0);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  REQUIRE(::connect(fd.get(), place, size) == 0);
  peer->Reset(::accept(listener.get(), nullptr, nullptr));
  const std::string much(1 << 16, 'x');
  while (::send(fd.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
  }
  const linger wait{.l_onoff = 1, .l_linger = 30};
  REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)) == 0);
  return fd;
}

TEST_CASE("what is dropped is closed, what is released is not") {
  FdCloser closer;
  Pipe dropped, released;
  {
    ClientFd one(std::move(dropped.writing), 1, &closer);
    ClientFd moved = std::move(one);
    CHECK(!one.valid());
    CHECK(moved.valid());
    ClientFd other(std::move(released.writing), 1, &closer);
    released.writing = other.Release();
    CHECK(!other.valid());
  }
  CHECK(dropped.Ended());
  CHECK(::write(released.writing.get(), "x", 1) == 1);
}

bool threads_to_be_had = true;

bool Start(void* (*main)(void*), void* arg) {
  pthread_t thread;
  if (!threads_to_be_had || ::pthread_create(&thread, nullptr, main, arg) != 0) return false;
  ::pthread_detach(thread);
  return true;
}

TEST_CASE("without a thread nothing is closed, until the next is dropped and there is one") {
  FdCloser closer(&Start);
  Pipe first, second, other;
  threads_to_be_had = false;
  closer.Close(1, std::move(first.writing));
  closer.Close(1, std::move(second.writing));
  for (const Pipe* pipe : {&first, &second}) {
    pollfd ready{.fd = pipe->reading.get(), .events = POLLIN, .revents = 0};
    CHECK(::poll(&ready, 1, 0) == 0);
  }
  threads_to_be_had = true;
  closer.Close(2, std::move(other.writing));
  CHECK(first.Ended());
  CHECK(second.Ended());
  CHECK(other.Ended());
}

TEST_CASE("a close that waits holds up neither its caller nor other users") {
  FdCloser closer;
  UniqueFd peer;
  Pipe same, other;
  const int64_t start_ns = NowNs();
  closer.Close(1, Lingering(&peer));
  closer.Close(1, std::move(same.writing));
  closer.Close(2, std::move(other.writing));
  CHECK(other.Ended());
  CHECK(NowNs() - start_ns < 20'000'000'000);
  // The user's own wait, and there may be only so many.
  CHECK(!closer.Full(1));
  for (int i = 0; i < 300; ++i) closer.Close(1, UniqueFd(::dup(0)));
  CHECK(closer.Full(1));
  CHECK(!closer.Full(2));
  peer.Reset();  // which ends the wait
  CHECK(same.Ended());
  while (closer.Full(1)) std::this_thread::yield();
}

}  // namespace
}  // namespace shunt::daemon
