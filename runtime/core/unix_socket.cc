#include "runtime/core/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt {
namespace {

int KernelType(SocketType type) {
  return type == SocketType::kStream ? SOCK_STREAM : SOCK_SEQPACKET;
}

// `path` has passed CheckUnixPath.
sockaddr_un Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

int Bind(int fd, const std::string& path) {
  const sockaddr_un address = Address(path);
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
}

int Connect(int fd, const std::string& path) {
  const sockaddr_un address = Address(path);
  int result;
  do {
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Keeps two daemons that start at the same moment from both replacing one stale file. The lock is
// on the directory, so no lock file stays behind. Anyone who can read the directory can hold it, so
// it is awaited for a bounded time only; then the worst case is that the later daemon wins the
// name.
UniqueFd LockDirectory(const std::string& path) {
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return directory;
  for (int i = 0; i < 50 && ::flock(directory.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
    const timespec pause{0, 20'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return directory;
}

// OK if the file at `path` is a socket that nobody listens on.
absl::Status CheckStale(const std::string& path, SocketType type) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("looking at ", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat("socket path ", path, " is taken by a file that is not a socket"));
  }
  const UniqueFd probe(::socket(AF_UNIX, KernelType(type) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return ErrnoStatus(errno, "creating a socket");
  const int err = Connect(probe.get(), path);
  if (err == ECONNREFUSED || err == ENOENT) return absl::OkStatus();
  // Anything else, also a full backlog, another socket type or no permission: someone may live
  // there.
  return absl::AlreadyExistsError(
      absl::StrCat("socket path ", path, " is taken: another server listens on it"));
}

}  // namespace

absl::Status CheckUnixPath(std::string_view path) {
  if (path.empty()) return absl::InvalidArgumentError("socket path is empty");
  if (path.size() > kMaxUnixPathBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path ", absl::string_view(path.data(), path.size()), " has ",
                     path.size(), " bytes; the limit is ", kMaxUnixPathBytes));
  }
  if (path.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError("socket path contains a zero byte");
  }
  return absl::OkStatus();
}

UnixListener::UnixListener(UnixListener&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::exchange(other.path_, {})),
      owns_name_(other.owns_name_),
      device_(other.device_),
      inode_(other.inode_) {}

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::move(other.fd_);
    path_ = std::exchange(other.path_, {});
    owns_name_ = other.owns_name_;
    device_ = other.device_;
    inode_ = other.inode_;
  }
  return *this;
}

absl::StatusOr<UnixListener> UnixListener::Listen(const std::string& path, const Options& options) {
  SHUNT_RETURN_IF_ERROR(CheckUnixPath(path));
  UniqueFd fd(::socket(AF_UNIX, KernelType(options.type) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "creating a socket");
  // bind() gives the file the socket's own mode less the umask: never open wider, even for a
  // moment.
  if (::fchmod(fd.get(), options.mode) != 0) return ErrnoStatus(errno, "setting a socket's mode");

  // Held from before the name appears until it answers: between bind() and listen() a socket looks
  // stale.
  const UniqueFd lock = LockDirectory(ParentOf(path));
  int err = Bind(fd.get(), path);
  if (err == EADDRINUSE) {
    SHUNT_RETURN_IF_ERROR(CheckStale(path, options.type));
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("removing the stale socket ", path));
    }
    err = Bind(fd.get(), path);
  }
  if (err == 0 && ::listen(fd.get(), options.backlog) != 0) err = errno;
  if (err == ENOENT) {
    return absl::NotFoundError(
        absl::StrCat("socket path ", path, ": the directory ", ParentOf(path), " does not exist"));
  }
  if (err != 0) return ErrnoStatus(err, absl::StrCat("listening on ", path));

  struct stat info {};
  if (::chmod(path.c_str(), options.mode) != 0 || ::lstat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("setting the mode of ", path));
  }
  UnixListener listener;
  listener.fd_ = std::move(fd);
  listener.path_ = path;
  listener.owns_name_ = true;
  listener.device_ = info.st_dev;
  listener.inode_ = info.st_ino;
  return listener;
}

absl::StatusOr<UnixListener> UnixListener::Adopt(UniqueFd fd, const std::string& path) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) {
    return ErrnoStatus(errno, absl::StrCat("taking the socket ", path));
  }
  UnixListener listener;
  listener.fd_ = std::move(fd);
  listener.path_ = path;
  return listener;
}

absl::StatusOr<UniqueFd> UnixListener::Accept(bool nonblocking) {
  for (;;) {
    UniqueFd fd(
        ::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0)));
    if (fd.valid()) return fd;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return UniqueFd();
    return ErrnoStatus(errno, absl::StrCat("accepting on ", path_));
  }
}

void UnixListener::Close() {
  if (!fd_.valid()) return;
  struct stat info {};
  if (owns_name_ && ::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ &&
      info.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
  fd_.Reset();
}

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path, SocketType type,
                                     std::chrono::milliseconds timeout) {
  SHUNT_RETURN_IF_ERROR(CheckUnixPath(path));
  UniqueFd fd(::socket(AF_UNIX, KernelType(type) | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "creating a socket");
  const bool bounded = timeout != std::chrono::milliseconds::max();
  timeval limit{};
  if (bounded) {
    limit.tv_sec = timeout.count() / 1000;
    limit.tv_usec = timeout.count() % 1000 * 1000;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  const int err = Connect(fd.get(), path);
  switch (err) {
    case 0:
      break;
    case ENOENT:
      return absl::UnavailableError(
          absl::StrCat("nobody listens on ", path, ": the socket does not exist"));
    case ECONNREFUSED:
      return absl::UnavailableError(
          absl::StrCat("nobody listens on ", path, ": its server has gone"));
    case EAGAIN:
      return absl::DeadlineExceededError(
          absl::StrCat("the server on ", path, " accepted nothing for ", timeout.count(), " ms"));
    default:
      return ErrnoStatus(err, absl::StrCat("connecting to ", path));
  }
  if (bounded) {
    limit = {};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  return fd;
}

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MakeSocketPair(SocketType type) {
  int fds[2];
  if (::socketpair(AF_UNIX, KernelType(type) | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoStatus(errno, "creating a socket pair");
  }
  return std::pair<UniqueFd, UniqueFd>(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

}  // namespace shunt
