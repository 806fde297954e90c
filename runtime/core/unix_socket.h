// Unix sockets with a name in the file system: listening, connecting, passing descriptors, and
// knowing who is at the other end. All descriptors made here are close-on-exec. Free functions are
// thread-safe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"

namespace shunt {

// Bytes of the longest path: sun_path less its terminating zero.
inline constexpr size_t kMaxUnixPathBytes = 107;

enum class SocketType { kStream, kSeqPacket };

// INVALID_ARGUMENT for an empty path, one with a zero byte, and one that is too long (names the
// limit).
absl::Status CheckUnixPath(std::string_view path);

// A listening socket that owns its name: the destructor removes the file, if it is still this
// socket's. One that was adopted leaves the name to whoever made it.
class UnixListener {
 public:
  struct Options {
    SocketType type = SocketType::kStream;
    mode_t mode = 0600;  // of the socket file, whatever the umask says; writing is connecting
    int backlog = 128;
  };

  UnixListener() = default;
  UnixListener(UnixListener&& other) noexcept;
  UnixListener& operator=(UnixListener&& other) noexcept;
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;
  ~UnixListener() { Close(); }

  // Binds and listens; non-blocking. A socket file that nobody listens on any more is replaced.
  // Fails with ALREADY_EXISTS if a live server has the path or a file that is no socket lies there;
  // NOT_FOUND if the parent directory is missing; INVALID_ARGUMENT as CheckUnixPath.
  static absl::StatusOr<UnixListener> Listen(const std::string& path, const Options& options);

  // A socket that listens at `path` already, made by another program (a service manager).
  // Non-blocking and close-on-exec from now on.
  static absl::StatusOr<UnixListener> Adopt(UniqueFd fd, const std::string& path);

  // The next waiting connection (blocking mode unless asked), or an invalid descriptor if there is
  // none.
  absl::StatusOr<UniqueFd> Accept(bool nonblocking = false);

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  // Stops listening and removes the name, if it is this socket's to remove. Idempotent.
  void Close();

 private:
  UniqueFd fd_;
  std::string path_;
  bool owns_name_ = false;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// A blocking connection. UNAVAILABLE if nobody listens there (says whether the file exists),
// PERMISSION_DENIED, DEADLINE_EXCEEDED if the server has not room for one more within `timeout` (>
// 0).
absl::StatusOr<UniqueFd> ConnectUnix(
    const std::string& path, SocketType type,
    std::chrono::milliseconds timeout = std::chrono::milliseconds::max());

// A connected pair, for tests and for parent and child.
absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MakeSocketPair(SocketType type);

// Descriptors in one message, at most.
inline constexpr size_t kMaxFdsPerMessage = 16;

// Sends `payload` (at least one byte) and, with its first byte, `fds`, which stay the caller's. The
// whole payload, also on a stream. UNAVAILABLE if the peer is gone (no SIGPIPE); RESOURCE_EXHAUSTED
// if a non-blocking socket is full: on a stream, part may have gone out.
absl::Status SendWithFds(int socket, std::span<const std::byte> payload,
                         std::span<const int> fds = {});

struct Received {
  size_t bytes = 0;
  std::vector<UniqueFd> fds;
  bool closed = false;       // the peer sent its last byte (or, on SEQPACKET, an empty message)
  bool would_block = false;  // non-blocking, and nothing there
};

// Receives one message (SEQPACKET) or what is there (stream) into `buffer` (not empty).
// INVALID_ARGUMENT if the message is longer than `buffer` or carries more than `max_fds` <=
// kMaxFdsPerMessage descriptors: it is lost and all its descriptors are closed, or given to
// `refused`, whose owner closes them where that may wait. UNAVAILABLE if the connection broke.
absl::StatusOr<Received> RecvWithFds(int socket, std::span<std::byte> buffer,
                                     size_t max_fds = kMaxFdsPerMessage,
                                     std::vector<UniqueFd>* refused = nullptr);

struct PeerCredentials {
  pid_t pid = 0;  // 0 if the peer lives in a PID namespace that this process cannot see
  uid_t uid = 0;
  gid_t gid = 0;
  UniqueFd pidfd;  // readable when the peer has exited; invalid if `pid` is 0 and the kernel is old
};

// Who called connect() (or listen()) at the other end, as the kernel recorded it then. The pidfd
// comes from the socket itself (Linux 6.5), or by number, where a recycled pid is then possible.
// NOT_FOUND if that process has already exited.
absl::StatusOr<PeerCredentials> GetPeerCredentials(int socket);

}  // namespace shunt
