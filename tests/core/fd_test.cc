#include "runtime/core/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>

#include "tests/support/fds.h"

namespace shunt {
namespace {

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

bool ReadableNow(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

TEST_CASE("a descriptor is closed once, by its last owner") {
  const int before = testing::CountOpenFds();
  int number;
  {
    UniqueFd a = *MakeEventFd();
    number = a.get();
    UniqueFd b = std::move(a);
    CHECK_FALSE(a.valid());  // NOLINT(bugprone-use-after-move): the moved-from state is a promise
    CHECK(b.get() == number);
    UniqueFd& same = b;
    b = std::move(same);  // keeps it
    CHECK(IsOpen(number));
    UniqueFd c = *MakeEventFd();
    c = std::move(b);
    CHECK(c.get() == number);
  }
  CHECK_FALSE(IsOpen(number));
  CHECK(testing::CountOpenFds() == before);
}

TEST_CASE("closing a descriptor keeps errno") {
  errno = ENOENT;
  { UniqueFd nonsense(9999); }
  CHECK(errno == ENOENT);
}

TEST_CASE("a sealed memory file cannot change its size or its seals") {
  const UniqueFd fd = *MakeSealedMemfd("test", 8192);
  CHECK(::ftruncate(fd.get(), 4096) != 0);
  CHECK(::ftruncate(fd.get(), 16384) != 0);
  CHECK(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK(CheckSealedMemfd(fd.get(), 8192).ok());
  CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a sealed memory file refuses a size of zero and one beyond off_t") {
  CHECK(MakeSealedMemfd("test", 0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(MakeSealedMemfd("test", ~size_t{0}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a file that could shrink under a mapping is refused") {
  SECTION("a memory file without seals") {
    const UniqueFd fd(::memfd_create("bare", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(fd.get(), 4096) == 0);
    CHECK_FALSE(CheckSealedMemfd(fd.get(), 4096).ok());
    SECTION("also with only one of them") {
      REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW) == 0);
      CHECK_FALSE(CheckSealedMemfd(fd.get(), 4096).ok());
    }
  }
  SECTION("not a memory file") {
    const UniqueFd fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    CHECK_FALSE(CheckSealedMemfd(fd.get(), 1).ok());
  }
  SECTION("sealed but too small: the message has both sizes") {
    const UniqueFd fd = *MakeSealedMemfd("small", 4096);
    const absl::Status status = CheckSealedMemfd(fd.get(), 4097);
    CHECK_THAT(std::string(status.message()), Catch::Contains("4096") && Catch::Contains("4097"));
  }
}

TEST_CASE("two mappings of one file are the same memory") {
  const UniqueFd fd = *MakeSealedMemfd("shared", 8192);
  Mapping a = *Mapping::Map(fd.get(), 8192);
  const Mapping b = *Mapping::Map(fd.get(), 4096, Mapping::Access::kReadOnly, 4096);
  std::memcpy(a.data() + 4096, "hello", 6);
  CHECK(std::memcmp(b.data(), "hello", 6) == 0);
  Mapping moved = std::move(a);
  CHECK_FALSE(a.valid());  // NOLINT(bugprone-use-after-move)
  CHECK(moved.size() == 8192);
  moved.Reset();
  CHECK_FALSE(moved.valid());
}

TEST_CASE("mapping nothing is an error, not a crash") {
  const UniqueFd fd = *MakeSealedMemfd("x", 4096);
  CHECK_FALSE(Mapping::Map(fd.get(), 0).ok());
  CHECK_FALSE(Mapping::Map(-1, 4096).ok());
}

TEST_CASE("an eventfd is readable from the first signal until it is drained") {
  const UniqueFd fd = *MakeEventFd();
  CHECK_FALSE(ReadableNow(fd.get()));
  CHECK(DrainEventFd(fd.get()) == 0);
  SignalEventFd(fd.get());
  SignalEventFd(fd.get());
  CHECK(ReadableNow(fd.get()));
  CHECK(DrainEventFd(fd.get()) == 2);
  CHECK_FALSE(ReadableNow(fd.get()));
}

TEST_CASE("signalling a full eventfd does not block") {
  const UniqueFd fd = *MakeEventFd();
  const uint64_t full = ~uint64_t{0} - 1;
  REQUIRE(::write(fd.get(), &full, sizeof(full)) == sizeof(full));
  SignalEventFd(fd.get());
  CHECK(DrainEventFd(fd.get()) == full);
}

TEST_CASE("a duplicate outlives the original") {
  UniqueFd a = *MakeEventFd();
  const UniqueFd b = *Duplicate(a.get());
  SignalEventFd(a.get());
  a.Reset();
  CHECK(DrainEventFd(b.get()) == 1);
  CHECK_FALSE(Duplicate(-1).ok());
}

TEST_CASE("a pidfd becomes readable when its process ends") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const UniqueFd fd = *OpenPidFd(child);
  CHECK_FALSE(ReadableNow(fd.get()));
  ::kill(child, SIGKILL);
  pollfd p{fd.get(), POLLIN, 0};
  CHECK(::poll(&p, 1, 10'000) == 1);
  ::waitpid(child, nullptr, 0);
  CHECK(OpenPidFd(child).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace shunt
