#include "runtime/transport/tcp/byte_stream.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::transport {
namespace {

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(UniqueFd fd) : fd_(std::move(fd)) {}
  int fd() const override { return fd_.get(); }

  absl::StatusOr<size_t> Read(const iovec* parts, int count) override {
    for (;;) {
      const ssize_t n = ::readv(fd_.get(), parts, count);
      if (n > 0) return static_cast<size_t>(n);
      if (n == 0) return absl::UnavailableError("closed the connection");
      if (errno == EAGAIN) return size_t{0};
      if (errno != EINTR) return ErrnoStatus(errno, "receiving");
    }
  }

  absl::StatusOr<size_t> Write(const iovec* parts, int count) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = static_cast<size_t>(count);
    for (;;) {
      const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) return static_cast<size_t>(n);
      if (errno == EAGAIN) return size_t{0};
      if (errno != EINTR) return ErrnoStatus(errno, "sending");
    }
  }

 private:
  UniqueFd fd_;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Numeric only: looking a name up would block.
absl::StatusOr<Address> Parse(const std::string& address, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", address, "\": expected a numeric IPv4 or IPv6 address"));
  }
  Address result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.bytes = found->ai_addrlen;
  ::freeaddrinfo(found);
  return result;
}

absl::StatusOr<UniqueFd> NewSocket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "making a TCP socket");
  return fd;
}

}  // namespace

std::unique_ptr<ByteStream> MakePlainStream(UniqueFd fd) {
  return std::make_unique<PlainStream>(std::move(fd));
}

absl::StatusOr<UniqueFd> TcpListen(const std::string& address, uint16_t port) {
  SHUNT_ASSIGN_OR_RETURN(const Address at, Parse(address, port));
  SHUNT_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(at.get()->sa_family));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd.get(), at.get(), at.bytes) != 0 || ::listen(fd.get(), 256) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listening on ", address, " port ", port));
  }
  return fd;
}

absl::StatusOr<UniqueFd> TcpConnect(const std::string& address, uint16_t port,
                                    const TcpOptions& options) {
  SHUNT_ASSIGN_OR_RETURN(const Address at, Parse(address, port));
  SHUNT_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(at.get()->sa_family));
  SHUNT_RETURN_IF_ERROR(SetSocketOptions(fd.get(), options));
  if (::connect(fd.get(), at.get(), at.bytes) != 0 && errno != EINPROGRESS) {
    return ErrnoStatus(errno, "connecting");
  }
  return fd;
}

absl::Status ConnectResult(int fd) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "connecting");
}

absl::Status SetSocketOptions(int fd, const TcpOptions& options) {
  const auto set = [&](int level, int name, const void* value, socklen_t bytes,
                       const char* what) -> absl::Status {
    if (::setsockopt(fd, level, name, value, bytes) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("setting ", what));
  };
  const int on = 1;
  SHUNT_RETURN_IF_ERROR(set(IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on), "TCP_NODELAY"));
  const auto number = [&](int level, int name, int value, const char* what) {
    return value == 0 ? absl::OkStatus() : set(level, name, &value, sizeof(value), what);
  };
  SHUNT_RETURN_IF_ERROR(
      number(IPPROTO_TCP, TCP_NOTSENT_LOWAT, options.unsent_bytes_max, "TCP_NOTSENT_LOWAT"));
  SHUNT_RETURN_IF_ERROR(number(SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes, "SO_SNDBUF"));
  SHUNT_RETURN_IF_ERROR(number(SOL_SOCKET, SO_RCVBUF, options.receive_buffer_bytes, "SO_RCVBUF"));
  if (options.congestion.empty()) return absl::OkStatus();
  return set(IPPROTO_TCP, TCP_CONGESTION, options.congestion.data(),
             static_cast<socklen_t>(options.congestion.size()),
             absl::StrCat("the congestion control to \"", options.congestion, "\"").c_str());
}

uint64_t RoundTripNs(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return 0;
  return uint64_t{1000} * info.tcpi_rtt;
}

uint16_t LocalPort(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string RemoteAddress(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, host, sizeof(host), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return absl::StrCat(host, ":", port);
}

}  // namespace shunt::transport
