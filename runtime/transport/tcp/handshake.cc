// From a connection to a peer: hello, and the answer.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/transport/tcp/mover.h"
#include "runtime/transport/tcp/state.h"

namespace shunt::transport {

namespace {
// Sockets taken from the listener in one go.
constexpr int kAcceptsMax = 16;
}  // namespace

void TcpTransport::Accept() {
  for (int i = 0; i < kAcceptsMax; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      AcceptOne(std::move(fd));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // It would stay readable for ever; the timer looks again.
      listener_paused_ = true;
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      ArmTimer();
    }
    return;
  }
}

void TcpTransport::AcceptOne(UniqueFd fd) {
  if (static_cast<int>(strangers_.size()) >= options_.unauthenticated_max) {
    Refuse(strangers_.front().get(), absl::ResourceExhaustedError(absl::StrCat(
                                         options_.unauthenticated_max,
                                         " connections have not shown a token, expected less")));
  }
  auto socket = std::make_shared<Socket>();
  socket->remote = RemoteAddress(fd.get());
  socket->since_ns = NowNs();
  const absl::Status status = SetSocketOptions(fd.get(), options_);
  socket->bytes = MakePlainStream(std::move(fd));
  Socket* accepted = socket.get();
  strangers_.push_back(std::move(socket));
  if (!status.ok()) return Refuse(accepted, status);
  Watch(accepted, EPOLLIN);
  ArmTimer();
}

absl::Status TcpTransport::StartConnecting(Peer* peer) {
  peer->sockets.resize(static_cast<size_t>(options_.streams));
  for (int stream = 0; stream < options_.streams; ++stream) {
    SHUNT_ASSIGN_OR_RETURN(UniqueFd fd, TcpConnect(peer->info.address, peer->info.port, options_));
    auto socket = std::make_shared<Socket>();
    socket->state = Socket::State::kConnecting;
    socket->peer = peer;
    socket->stream = stream;
    socket->remote = absl::StrCat(peer->info.address, ":", peer->info.port);
    socket->bytes = MakePlainStream(std::move(fd));
    Watch(socket.get(), EPOLLOUT);
    peer->sockets[stream] = std::move(socket);
  }
  return absl::OkStatus();
}

void TcpTransport::Handshake(Socket* socket, uint32_t events) {
  absl::Status status;
  switch (socket->state) {
    case Socket::State::kConnecting:
      if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return;
      status = ConnectResult(socket->bytes->fd());
      if (status.ok()) status = SayHello(socket, *socket->peer, options_.versions);
      socket->state = Socket::State::kGreeted;
      if (status.ok()) Watch(socket, EPOLLIN);
      break;
    case Socket::State::kGreeted:
      status = ReadHello(socket);
      if (!status.ok() || !socket->hello.has_value()) break;
      status = CheckHello(*socket->hello, *socket->peer);
      if (status.ok() &&
          (socket->hello->stream != socket->stream || socket->hello->streams != options_.streams)) {
        status = absl::InvalidArgumentError(
            absl::StrCat("hello: stream is ", socket->hello->stream, " of ", socket->hello->streams,
                         ", expected ", socket->stream, " of ", options_.streams));
      }
      if (status.ok()) {
        Ready(socket);
        return;
      }
      break;
    case Socket::State::kAccepted:
      status = ReadHello(socket);
      if (status.ok() && socket->hello.has_value()) status = Admit(socket);
      break;
    default:  // kUnknown, kReady: no frames are expected yet, only the end
      if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
        status = absl::UnavailableError("closed the connection");
      }
      break;
  }
  if (status.ok()) return;
  if (socket->peer == nullptr) {
    Refuse(socket, status);
  } else {
    Lose(socket->peer,
         absl::Status(status.code(), absl::StrCat(status.message(), ", during the handshake")));
  }
}

absl::Status TcpTransport::ReadHello(Socket* socket) {
  const iovec part = {socket->hello_bytes.data() + socket->hello_got,
                      wire::kHelloBytes - socket->hello_got};
  SHUNT_ASSIGN_OR_RETURN(const size_t read, socket->bytes->Read(&part, 1));
  socket->hello_got += read;
  if (socket->hello_got < wire::kHelloBytes) return absl::OkStatus();
  SHUNT_ASSIGN_OR_RETURN(socket->hello, wire::DecodeHello(socket->hello_bytes));
  return absl::OkStatus();
}

absl::Status TcpTransport::SayHello(Socket* socket, const Peer& peer, wire::Versions versions) {
  wire::Hello hello;
  hello.versions = versions;
  hello.stream = static_cast<uint8_t>(socket->stream);
  hello.streams = static_cast<uint8_t>(peer.sockets.size());
  hello.incarnation = options_.incarnation;
  hello.expected_incarnation = peer.info.incarnation;
  hello.token = peer.info.token_to_show;
  hello.cluster = options_.cluster;
  hello.from = options_.name;
  hello.to = peer.info.name;
  std::array<std::byte, wire::kHelloBytes> bytes;
  wire::Encode(hello, bytes);
  const iovec part = {bytes.data(), bytes.size()};
  SHUNT_ASSIGN_OR_RETURN(const size_t wrote, socket->bytes->Write(&part, 1));
  // An empty socket buffer holds more than this.
  if (wrote == bytes.size()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("hello: the socket took ", wrote, " bytes, expected ", bytes.size()));
}

absl::Status TcpTransport::CheckHello(const wire::Hello& hello, const Peer& peer) const {
  const auto differs = [](absl::string_view what, const auto& seen, const auto& expected) {
    return absl::FailedPreconditionError(
        absl::StrCat("hello: ", what, " is ", seen, ", expected ", expected));
  };
  if (hello.cluster != options_.cluster) return differs("cluster", hello.cluster, options_.cluster);
  if (hello.to != options_.name) return differs("receiver", hello.to, options_.name);
  if (hello.from != peer.info.name) return differs("sender", hello.from, peer.info.name);
  if (!wire::Equal(hello.token, peer.info.token_to_expect)) {
    return absl::PermissionDeniedError(
        absl::StrCat("hello: the token of ", hello.from, " is not the one issued to it"));
  }
  if (hello.incarnation != peer.info.incarnation) {
    return differs(absl::StrCat("incarnation of ", hello.from), hello.incarnation,
                   peer.info.incarnation);
  }
  if (hello.expected_incarnation != options_.incarnation) {
    return differs(absl::StrCat("incarnation of ", hello.to), hello.expected_incarnation,
                   options_.incarnation);
  }
  const auto version = wire::Negotiate(options_.versions, hello.versions);
  if (!version.ok()) return version.status();
  if (peer.version != 0 && peer.version != *version) {
    return differs("wire version", *version, peer.version);
  }
  return absl::OkStatus();
}

absl::Status TcpTransport::Admit(Socket* socket) {
  const wire::Hello& hello = *socket->hello;
  const auto named = by_name_.find(hello.from);
  if (named == by_name_.end()) {
    // The control plane may have told the other side first. It waits, within its time.
    socket->state = Socket::State::kUnknown;
    Watch(socket, 0);
    return absl::OkStatus();
  }
  Peer* peer = peers_.at(named->second).get();
  SHUNT_RETURN_IF_ERROR(CheckHello(hello, *peer));
  if (hello.from >= options_.name) {
    return absl::FailedPreconditionError(absl::StrCat(
        "hello: ", hello.from, " connects to ", options_.name, ", expected the smaller name to"));
  }
  if (peer->up) {
    return absl::AlreadyExistsError(absl::StrCat("hello: ", hello.from, " is connected already"));
  }
  if (peer->sockets.empty()) peer->sockets.resize(hello.streams);
  if (peer->sockets.size() != hello.streams || peer->sockets[hello.stream] != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("hello: stream is ", hello.stream, " of ",
                                                 hello.streams, ", expected a new one of ",
                                                 peer->sockets.size()));
  }
  socket->stream = hello.stream;
  const uint8_t version = *wire::Negotiate(options_.versions, hello.versions);
  SHUNT_RETURN_IF_ERROR(SayHello(socket, *peer, {version, version}));
  const auto own = std::find_if(strangers_.begin(), strangers_.end(),
                                [&](const auto& s) { return s.get() == socket; });
  peer->sockets[hello.stream] = std::move(*own);
  strangers_.erase(own);
  socket->peer = peer;
  Ready(socket);
  return absl::OkStatus();
}

// The socket is its peer's. With the last stream, the peer is up.
void TcpTransport::Ready(Socket* socket) {
  Peer* peer = socket->peer;
  peer->version = *wire::Negotiate(options_.versions, socket->hello->versions);
  socket->state = Socket::State::kReady;
  socket->hello.reset();
  Watch(socket, 0);
  if (++peer->ready < static_cast<int>(peer->sockets.size())) return;
  peer->up = true;
  peer->came_ns = peer->sent_ns = NowNs();
  for (const auto& each : peer->sockets) {
    each->state = Socket::State::kOpen;
    each->reader.emplace();
    if (each->stream == 0 || movers_.empty()) {
      Watch(each.get(), EPOLLIN);
      continue;
    }
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, each->bytes->fd(), nullptr);
    movers_[static_cast<size_t>(each->stream - 1) % movers_.size()]->Adopt(each);
  }
  engine_.PeerUp(peer->engine, static_cast<int>(peer->sockets.size()));
}

void TcpTransport::Refuse(Socket* socket, const absl::Status& why) {
  if (options_.on_refused) {
    options_.on_refused(absl::Status(
        why.code(), absl::StrCat("connection from ", socket->remote, ": ", why.message())));
  }
  const auto own = std::find_if(strangers_.begin(), strangers_.end(),
                                [&](const auto& s) { return s.get() == socket; });
  CloseSocket(socket);
  closed_.push_back(std::move(*own));
  strangers_.erase(own);
}

}  // namespace shunt::transport
