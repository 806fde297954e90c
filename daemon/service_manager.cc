// The only file that sees libsystemd. The messages are those of sd_notify(3), the descriptors those
// of sd_listen_fds(3).
#include "daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

std::string StatusLine(std::string_view words) {
  std::string line = "STATUS=";
  for (const char c : words) line.push_back(c == '\n' || c == '\r' ? ' ' : c);
  return line;
}

// Best effort: a service manager that does not listen is not the daemon's trouble.
void Tell(const std::string& message) { (void)sd_notify(0, message.c_str()); }

const char* TypeWords(int type) {
  return type == SOCK_STREAM ? "stream" : type == SOCK_SEQPACKET ? "sequential-packet" : "other";
}

// "a stream socket at /run/x", for messages.
std::string DescribeSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  sockaddr_un address{};
  socklen_t length = sizeof(address);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return "a descriptor that is no socket";
  }
  if (address.sun_family != AF_UNIX) return "a socket that is no Unix socket";
  const size_t bytes = length - offsetof(sockaddr_un, sun_path);
  std::string path(address.sun_path, bytes);
  if (const size_t end = path.find('\0'); end != std::string::npos) path.resize(end);
  return absl::StrCat("a ", TypeWords(type), " socket at ", path.empty() ? "no path" : path);
}

bool Listens(int fd, int type, const std::string& path) {
  return sd_is_socket_unix(fd, type, /*listening=*/1, path.c_str(), 0) > 0;
}

}  // namespace

void TellReady(std::string_view words) { Tell(absl::StrCat("READY=1\n", StatusLine(words))); }

void TellStatus(std::string_view words) { Tell(StatusLine(words)); }

void TellReloading(std::string_view words) {
  Tell(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", NowNs() / 1000, "\n", StatusLine(words)));
}

void TellStopping(std::string_view words, std::chrono::nanoseconds at_most) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(at_most).count();
  Tell(absl::StrCat("STOPPING=1\nEXTEND_TIMEOUT_USEC=", us, "\n", StatusLine(words)));
}

void TellAlive() { Tell("WATCHDOG=1"); }

std::chrono::nanoseconds WatchdogPeriod() {
  uint64_t us = 0;
  if (sd_watchdog_enabled(0, &us) <= 0) return std::chrono::nanoseconds(0);
  return std::chrono::microseconds(us);
}

absl::StatusOr<GivenSockets> TakeGivenSockets(const std::string& socket) {
  const int count = sd_listen_fds(/*unset_environment=*/1);
  if (count < 0) return ErrnoStatus(-count, "taking the sockets of the service manager");
  GivenSockets given;
  const std::string lease = socket + ".lease";
  for (int i = 0; i < count; ++i) {
    UniqueFd fd(SD_LISTEN_FDS_START + i);
    if (given.grpc.fd() < 0 && Listens(fd.get(), SOCK_STREAM, socket)) {
      SHUNT_ASSIGN_OR_RETURN(given.grpc, UnixListener::Adopt(std::move(fd), socket));
    } else if (given.lease.fd() < 0 && Listens(fd.get(), SOCK_SEQPACKET, lease)) {
      SHUNT_ASSIGN_OR_RETURN(given.lease, UnixListener::Adopt(std::move(fd), lease));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("the service manager passes ", DescribeSocket(fd.get()),
                       "; expected, listening, a stream socket at ", socket,
                       " (the key socket) and a ", "sequential-packet socket at ", lease));
    }
  }
  if (count != 0 && (given.grpc.fd() < 0 || given.lease.fd() < 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the service manager passes no socket for ", given.grpc.fd() < 0 ? socket : lease,
        "; expected both ", socket, " (stream) and ", lease, " (sequential-packet)"));
  }
  return given;
}

}  // namespace shunt::daemon
