// Messages with descriptors, and the peer's credentials: the part of unix_socket.h that moves data.
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace shunt {
namespace {

constexpr size_t kControlBytes = CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage);

// The union gives the bytes the alignment that cmsghdr needs.
union ControlBuffer {
  cmsghdr header;
  std::array<char, kControlBytes> bytes;
};

absl::Status SendError(int err) {
  if (err == EAGAIN || err == ENOBUFS) {
    return absl::ResourceExhaustedError("sending on a unix socket: the peer does not read");
  }
  return ErrnoStatus(err, "sending on a unix socket");
}

// Takes ownership of every descriptor in the message, whatever else is wrong with it.
std::vector<UniqueFd> TakeFds(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

absl::Status SendWithFds(int socket, std::span<const std::byte> payload, std::span<const int> fds) {
  if (payload.empty()) {
    return absl::InvalidArgumentError("sending on a unix socket: the payload is empty");
  }
  if (fds.size() > kMaxFdsPerMessage) {
    return absl::InvalidArgumentError(absl::StrCat("sending on a unix socket: ", fds.size(),
                                                   " descriptors; the limit is ",
                                                   kMaxFdsPerMessage));
  }
  ControlBuffer control{};
  bool fds_sent = fds.empty();
  while (!payload.empty()) {
    iovec piece{const_cast<std::byte*>(payload.data()), payload.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (!fds_sent) {
      message.msg_control = control.bytes.data();
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
    }
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return SendError(errno);
    }
    fds_sent = true;
    payload = payload.subspan(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::StatusOr<Received> RecvWithFds(int socket, std::span<std::byte> buffer, size_t max_fds,
                                     std::vector<UniqueFd>* refused) {
  SHUNT_CHECK(!buffer.empty() && max_fds <= kMaxFdsPerMessage);
  // Room for the limit, not for max_fds: what fits is closed here, and the kernel closes the rest.
  ControlBuffer control{};
  iovec piece{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t got;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);

  Received received;
  if (got < 0) {
    if (errno == EAGAIN) {
      received.would_block = true;
      return received;
    }
    return ErrnoStatus(errno, "receiving on a unix socket");
  }
  received.fds = TakeFds(message);
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    if (refused != nullptr) *refused = std::move(received.fds);
    return absl::InvalidArgumentError(absl::StrCat(
        "receiving on a unix socket: the message is longer than ", buffer.size(), " bytes"));
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 || received.fds.size() > max_fds) {
    if (refused != nullptr) *refused = std::move(received.fds);
    return absl::InvalidArgumentError(
        absl::StrCat("receiving on a unix socket: the message carries more than ", max_fds,
                     " descriptors, or this process has no room for them"));
  }
  received.bytes = static_cast<size_t>(got);
  received.closed = got == 0;
  return received;
}

absl::StatusOr<PeerCredentials> GetPeerCredentials(int socket) {
  ucred who{};
  socklen_t length = sizeof(who);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) {
    return ErrnoStatus(errno, "reading the credentials of a unix socket's peer");
  }
  PeerCredentials peer;
  peer.pid = who.pid;
  peer.uid = who.uid;
  peer.gid = who.gid;

  int pidfd = -1;
  length = sizeof(pidfd);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
    peer.pidfd.Reset(pidfd);
    return peer;
  }
  if (errno != ENOPROTOOPT) {
    return absl::NotFoundError(absl::StrCat("the process at the other end of a unix socket (pid ",
                                            peer.pid, ") has exited"));
  }
  if (peer.pid <= 0) return peer;
  SHUNT_ASSIGN_OR_RETURN(peer.pidfd, OpenPidFd(peer.pid));
  return peer;
}

}  // namespace shunt
