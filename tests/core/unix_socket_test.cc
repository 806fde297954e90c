#include "runtime/core/unix_socket.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/temp_dir.h"

namespace shunt {
namespace {

using Options = UnixListener::Options;

bool Exists(const std::string& path) {
  return std::filesystem::exists(std::filesystem::symlink_status(path));
}

// What a killed server leaves: the file, and nobody behind it.
void LeaveStaleSocket(const std::string& path) {
  UnixListener listener = *UnixListener::Listen(path, {});
  REQUIRE(::rename(path.c_str(), (path + ".kept").c_str()) == 0);
  listener.Close();
  REQUIRE(::rename((path + ".kept").c_str(), path.c_str()) == 0);
}

TEST_CASE("a server is reached at its path and takes the name with it") {
  const testing::TempDir dir;
  const auto type = GENERATE(SocketType::kStream, SocketType::kSeqPacket);
  UnixListener listener = *UnixListener::Listen(dir / "s", {.type = type});
  CHECK_FALSE(listener.Accept()->valid());
  const UniqueFd client = *ConnectUnix(dir / "s", type);
  CHECK(listener.Accept()->valid());
  listener.Close();
  CHECK_FALSE(Exists(dir / "s"));
  CHECK(ConnectUnix(dir / "s", type).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a socket's mode is the one asked for, whatever the umask") {
  const testing::TempDir dir;
  const mode_t saved = ::umask(077);
  const UnixListener open = *UnixListener::Listen(dir / "open", {.mode = 0666});
  ::umask(0);
  const UnixListener narrow = *UnixListener::Listen(dir / "narrow", {.mode = 0600});
  ::umask(saved);
  struct stat info {};
  REQUIRE(::stat((dir / "open").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0666);
  REQUIRE(::stat((dir / "narrow").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("an adopted socket serves and leaves its name to whoever made it") {
  const testing::TempDir dir;
  const UnixListener maker = *UnixListener::Listen(dir / "s", {});
  const int fd = ::dup(maker.fd());  // neither close-on-exec nor, below, non-blocking
  REQUIRE(::fcntl(fd, F_SETFL, 0) == 0);
  {
    UnixListener adopted = *UnixListener::Adopt(UniqueFd(fd), dir / "s");
    CHECK_FALSE(adopted.Accept()->valid());  // would block otherwise
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    const UniqueFd client = *ConnectUnix(dir / "s", SocketType::kStream);
    CHECK(adopted.Accept()->valid());
    UnixListener moved = std::move(adopted);
    moved.Close();
  }
  CHECK(Exists(dir / "s"));
}

TEST_CASE("a path that is too long is refused with its length and the limit") {
  const testing::TempDir dir;
  const std::string longest = dir / std::string(kMaxUnixPathBytes - dir.path().size() - 1, 'x');
  CHECK(UnixListener::Listen(longest, {}).ok());
  const absl::Status status = UnixListener::Listen(longest + "x", {}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains("108") && Catch::Contains("107"));
  CHECK(ConnectUnix(longest + "x", SocketType::kStream).status() == status);
  CHECK_FALSE(CheckUnixPath("").ok());
  CHECK_FALSE(CheckUnixPath(std::string_view("a\0b", 3)).ok());
}

TEST_CASE(
    "a path with a live server is taken, also by one of another type or with a full backlog") {
  const testing::TempDir dir;
  const UnixListener first = *UnixListener::Listen(dir / "s", {.backlog = 0});
  std::vector<UniqueFd> waiting;
  if (GENERATE(false, true)) waiting.push_back(*ConnectUnix(dir / "s", SocketType::kStream));
  for (const auto type : {SocketType::kStream, SocketType::kSeqPacket}) {
    const absl::Status status = UnixListener::Listen(dir / "s", {.type = type}).status();
    CHECK(status.code() == absl::StatusCode::kAlreadyExists);
    CHECK_THAT(std::string(status.message()),
               Catch::Contains(dir / "s") && Catch::Contains("another server"));
  }
  CHECK(Exists(dir / "s"));
}

TEST_CASE("a stale socket file is replaced") {
  const testing::TempDir dir;
  LeaveStaleSocket(dir / "s");
  const absl::Status refused = ConnectUnix(dir / "s", SocketType::kStream).status();
  CHECK(refused.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(refused.message()), Catch::Contains("has gone"));
  const auto listener = UnixListener::Listen(dir / "s", {});
  REQUIRE(listener.ok());
  CHECK(ConnectUnix(dir / "s", SocketType::kStream).ok());
}

TEST_CASE("of many servers that find the same stale file, one gets the name") {
  const testing::TempDir dir;
  LeaveStaleSocket(dir / "s");
  std::vector<absl::StatusOr<UnixListener>> results(8);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] { result = UnixListener::Listen(dir / "s", {}); });
  }
  for (auto& thread : threads) thread.join();
  int winners = 0;
  for (const auto& result : results) winners += result.ok() ? 1 : 0;
  CHECK(winners == 1);
  CHECK(ConnectUnix(dir / "s", SocketType::kStream).ok());
}

TEST_CASE("a file that is no socket is never removed") {
  const testing::TempDir dir;
  std::ofstream(dir / "s") << "precious";
  const absl::Status status = UnixListener::Listen(dir / "s", {}).status();
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK_THAT(std::string(status.message()), Catch::Contains("not a socket"));
  CHECK(Exists(dir / "s"));
}

TEST_CASE("a missing parent directory is named") {
  const testing::TempDir dir;
  const absl::Status status = UnixListener::Listen(dir / "none/s", {}).status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(status.message()), Catch::Contains("directory " + (dir / "none")));
}

TEST_CASE("a server that closes leaves a successor's socket alone") {
  const testing::TempDir dir;
  UnixListener first = *UnixListener::Listen(dir / "s", {});
  REQUIRE(::unlink((dir / "s").c_str()) == 0);
  const UnixListener second = *UnixListener::Listen(dir / "s", {});
  first.Close();
  CHECK(ConnectUnix(dir / "s", SocketType::kStream).ok());
}

TEST_CASE("connecting says whether the socket is missing and ends at its timeout") {
  const testing::TempDir dir;
  const absl::Status missing = ConnectUnix(dir / "s", SocketType::kStream).status();
  CHECK(missing.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(missing.message()), Catch::Contains("does not exist"));

  const UnixListener full = *UnixListener::Listen(dir / "s", {.backlog = 0});
  const UniqueFd waiting = *ConnectUnix(dir / "s", SocketType::kStream);
  const absl::Status late =
      ConnectUnix(dir / "s", SocketType::kStream, std::chrono::milliseconds(20)).status();
  CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace shunt
