#include "runtime/transport/tcp/tcp_transport.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/transport/tcp/mover.h"
#include "runtime/transport/tcp/state.h"

namespace shunt::transport {
namespace {

constexpr int kEventsMax = 64;
// Read from one socket before the next has its turn.
constexpr size_t kReadBudget = 2 << 20;
// What can leave leaves before the owner waits.
constexpr size_t kWriteBudget = std::numeric_limits<size_t>::max();
// Below this a hand-over to a mover and back costs more than it gains: with 32 or 16 KiB,
// all_reduce of 64 to 256 KiB on 4 nodes took longer.
constexpr uint64_t kOwnStreamBytes = 64 << 10;
// About as long as a piece is on its way.
constexpr int64_t kMoverSpinNs = 50'000;

}  // namespace

absl::StatusOr<std::unique_ptr<TcpTransport>> TcpTransport::Create(const TcpOptions& options) {
  std::unique_ptr<TcpTransport> transport(new TcpTransport(options));
  SHUNT_RETURN_IF_ERROR(transport->Start());
  return transport;
}

TcpTransport::TcpTransport(const TcpOptions& options)
    : options_(options), engine_(options.engine, kPlacesMax, kPlacesMax) {}
TcpTransport::~TcpTransport() = default;

void UseMovers(TcpOptions* options, int movers) {
  options->movers = movers;
  options->streams = 1 + movers;
  if (movers == 0) return;
  options->mover_spin_ns = kMoverSpinNs;
  options->engine.own_stream_bytes = kOwnStreamBytes;
}

absl::Status TcpTransport::CheckOptions() const {
  SHUNT_RETURN_IF_ERROR(wire::CheckName("cluster name", options_.cluster));
  SHUNT_RETURN_IF_ERROR(wire::CheckName("node name", options_.name));
  if (options_.streams < 1 || options_.streams > wire::kStreamsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("streams: ", options_.streams, ", expected 1 to ", wire::kStreamsMax));
  }
  const Limits& limits = options_.engine.limits;
  if (limits.eager_bytes > wire::kPayloadBytesMax ||
      limits.note_bytes_max > wire::kPayloadBytesMax ||
      options_.engine.piece_bytes > wire::kPayloadBytesMax || options_.engine.piece_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "eager, note and piece bytes: ", limits.eager_bytes, ", ", limits.note_bytes_max, " and ",
        options_.engine.piece_bytes, ", expected at most ", wire::kPayloadBytesMax));
  }
  if (limits.eager_slots > UINT16_MAX || limits.headers_waiting_max > UINT16_MAX ||
      limits.headers_waiting_max == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slots and headers waiting: ", limits.eager_slots, " and ",
                     limits.headers_waiting_max, ", expected at most ", UINT16_MAX));
  }
  if (options_.movers < 0 || options_.movers > wire::kStreamsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("movers: ", options_.movers, ", expected 0 to ", wire::kStreamsMax));
  }
  if (options_.unauthenticated_max < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unauthenticated connections: ", options_.unauthenticated_max, ", expected 1 or more"));
  }
  return absl::OkStatus();
}

absl::Status TcpTransport::Start() {
  SHUNT_RETURN_IF_ERROR(CheckOptions());
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return ErrnoStatus(errno, "making an epoll descriptor");
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_.valid()) return ErrnoStatus(errno, "making a timer");
  SHUNT_ASSIGN_OR_RETURN(listener_, TcpListen(options_.listen_address, options_.listen_port));
  // Names the congestion control that does not exist now, and not with each connection.
  SHUNT_RETURN_IF_ERROR(SetSocketOptions(listener_.get(), options_));
  port_ = LocalPort(listener_.get());
  // Events name a socket; these two are named by our own members.
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &listener_}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event);
  event.data.ptr = &timer_;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event);
  if (options_.movers == 0) return absl::OkStatus();
  SHUNT_ASSIGN_OR_RETURN(told_fd_, MakeEventFd());
  event.data.ptr = &told_fd_;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, told_fd_.get(), &event);
  engine_.set_before_giving_back([this](const PeerState* peer) {
    if (const auto found = peers_.find(peer->id); found != peers_.end())
      AwaitSystemCalls(*found->second);
  });
  for (int i = 0; i < options_.movers; ++i) {
    SHUNT_ASSIGN_OR_RETURN(std::unique_ptr<Mover> mover, Mover::Start(this));
    movers_.push_back(std::move(mover));
  }
  return absl::OkStatus();
}

absl::Status TcpTransport::AddPeer(const TcpPeer& info) {
  const std::lock_guard lock(mutex_);
  SHUNT_RETURN_IF_ERROR(wire::CheckName("peer name", info.name));
  if (info.name == options_.name) {
    return absl::InvalidArgumentError(
        absl::StrCat("peer ", info.id, ": has this node's own name, ", info.name));
  }
  if (by_name_.contains(info.name)) {
    return absl::AlreadyExistsError(
        absl::StrCat("peer ", info.id, ": ", info.name, " is peer ", by_name_[info.name]));
  }
  PeerState* engine = engine_.AddPeer(info.id);
  if (engine == nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("peer ", info.id, " (", info.name, "): the number is taken"));
  }
  if (options_.tallies != nullptr) engine->tally = options_.tallies->Of(info.name);
  auto owned = std::make_unique<Peer>();
  Peer* peer = owned.get();
  peer->info = info;
  peer->engine = engine;
  peer->added_ns = NowNs();
  peers_[info.id] = std::move(owned);
  by_name_[info.name] = info.id;
  ArmTimer();
  if (options_.name < info.name) {
    absl::Status status = StartConnecting(peer);
    if (!status.ok()) Lose(peer, status);
    return absl::OkStatus();
  }
  // Those that came before.
  std::vector<Socket*> waiting;
  for (const auto& socket : strangers_) {
    if (socket->state == Socket::State::kUnknown && socket->hello->from == info.name) {
      waiting.push_back(socket.get());
    }
  }
  for (Socket* socket : waiting) {
    if (absl::Status status = Admit(socket); !status.ok()) Refuse(socket, status);
  }
  return absl::OkStatus();
}

void TcpTransport::Close(uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, peer] : peers_) AwaitSystemCalls(*peer);
  engine_.Close(communicator);
}

void TcpTransport::RemovePeer(PeerId id) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Lose(found->second.get(), absl::CancelledError("removed by its owner"));
  engine_.RemovePeer(id);
  peers_.erase(found);
}

size_t TcpTransport::Poll(absl::Span<Completion> out) {
  const std::lock_guard lock(mutex_);
  const int64_t before_ns = std::exchange(now_ns_, NowNs());
  if (now_ns_ - before_ns > options_.heartbeat_ns) {
    // It was the owner who was away, longer than between two ticks: no peer's silence.
    for (const auto& [id, peer] : peers_) {
      peer->came_ns = std::min(now_ns_, peer->came_ns + (now_ns_ - before_ns));
    }
  }
  WriteAll();
  bool tick = false;
  // Who comes back from what the last look has found is asked again by the descriptor.
  if (!engine_.has_completions() && !std::exchange(looked_, false)) {
    epoll_event events[kEventsMax];
    // Movers go on meanwhile: an owner that looks again and again would hold them up. No socket
    // that this epoll names goes away, for only the owner closes them.
    if (!movers_.empty()) mutex_.unlock();
    const int count = ::epoll_wait(epoll_.get(), events, kEventsMax, 0);
    if (!movers_.empty()) mutex_.lock();
    for (int i = 0; i < count; ++i) {
      void* what = events[i].data.ptr;
      if (what == &timer_) {
        tick = true;
      } else if (what == &listener_) {
        Accept();
      } else if (what == &told_fd_) {
        DrainEventFd(told_fd_.get());
        told_ = false;
      } else {
        OnEvents(static_cast<Socket*>(what), events[i].events);
      }
    }
    // Silence is judged after all that has come was read.
    if (tick && count < kEventsMax) Tick();
    WriteAll();
    looked_ = engine_.has_completions() && count < kEventsMax;
  }
  LoseFailed();
  const size_t taken = engine_.Take(out);
  closed_.clear();
  return taken;
}

void TcpTransport::OnEvents(Socket* socket, uint32_t events) {
  // Since earlier in this batch.
  if (socket->closed || socket->mover != nullptr || !socket->failed.ok()) return;
  if (socket->state != Socket::State::kOpen) return Handshake(socket, events);
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) ReadFrom(socket);
  if (!socket->closed && socket->failed.ok() && (events & EPOLLOUT) != 0) {
    socket->blocked = false;
    WriteTo(socket);
  }
}

void TcpTransport::ReadFrom(Socket* socket) {
  Peer* peer = socket->peer;
  bool came = false;
  Gate gate(&mutex_, &socket->busy, &socket->closed);
  const absl::Status status =
      socket->reader->Read(socket->bytes.get(), &engine_, peer->engine, socket->stream,
                           peer->version, kReadBudget, &came, movers_.empty() ? nullptr : &gate);
  if (came) peer->came_ns = now_ns_;
  if (!status.ok()) Fail(socket, status);
}

void TcpTransport::WriteTo(Socket* socket) {
  Peer* peer = socket->peer;
  if (socket->blocked || !socket->failed.ok()) return;
  FrameWriter::Outcome out;
  Gate gate(&mutex_, &socket->busy, &socket->closed);
  const absl::Status status = socket->writer.Write(
      socket->bytes.get(), &engine_, peer->engine, socket->stream, peer->version, options_.crc,
      kWriteBudget, &out, movers_.empty() ? nullptr : &gate);
  socket->blocked = out.blocked;
  if (out.went) peer->sent_ns = now_ns_;
  if (!status.ok()) return Fail(socket, status);
  Watch(socket, socket->blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void TcpTransport::WriteAll() {
  Engine::Work work;
  while (engine_.NextWork(&work)) {
    const auto found = peers_.find(work.peer->id);
    if (found == peers_.end() || found->second->lost || !found->second->up) continue;
    Socket* const socket = found->second->sockets[work.stream].get();
    if (socket->mover != nullptr) {
      socket->mover->Write(socket);
    } else {
      WriteTo(socket);
    }
  }
}

void TcpTransport::AwaitSystemCalls(const Peer& peer) {
  for (const auto& socket : peer.sockets) {
    if (socket != nullptr) const std::lock_guard busy(socket->busy);
  }
}

void TcpTransport::Fail(Socket* socket, const absl::Status& why) {
  if (socket->mover == nullptr) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket->bytes->fd(), nullptr);
  }
  socket->failed = why;
  failed_.push_back(socket->peer->info.id);
}

void TcpTransport::LoseFailed() {
  for (const PeerId id : std::exchange(failed_, {})) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || found->second->lost) continue;
    Peer* const peer = found->second.get();
    bool all = true;
    for (const auto& socket : peer->sockets) {
      if (socket == nullptr || socket->failed.ok()) {
        all = false;
        continue;
      }
      if (peer->ending.ok() || !absl::IsUnavailable(socket->failed)) {
        peer->ending = socket->failed;
      }
    }
    // A peer closes all its streams when it ends, and what it said last may be on any of them.
    if (all || !absl::IsUnavailable(peer->ending)) {
      Lose(peer, peer->ending);
    } else if (peer->ending_ns == 0) {
      peer->ending_ns = now_ns_;
    }
  }
}

void TcpTransport::TellOwner() {
  if (told_ || (!engine_.has_completions() && !engine_.has_work() && failed_.empty())) return;
  told_ = true;
  SignalEventFd(told_fd_.get());
}

void TcpTransport::Watch(Socket* socket, uint32_t events) {
  if (socket->watched == events) return;
  epoll_event event{.events = events, .data = {.ptr = socket}};
  const int operation = socket->watched.has_value() ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  ::epoll_ctl(epoll_.get(), operation, socket->bytes->fd(), &event);
  socket->watched = events;
}

void TcpTransport::Lose(Peer* peer, const absl::Status& why) {
  if (peer->lost) return;
  peer->lost = true;
  by_name_.erase(peer->info.name);
  std::string words = absl::StrCat("node ", peer->info.name);
  for (auto& socket : peer->sockets) {
    if (socket == nullptr) continue;
    if (socket->stream == 0) absl::StrAppend(&words, " at ", socket->remote);
    CloseSocket(socket.get());
    closed_.push_back(std::move(socket));
  }
  peer->sockets.clear();
  engine_.PeerLost(peer->engine,
                   absl::Status(why.code(), absl::StrCat(words, ": ", why.message())));
}

void TcpTransport::CloseSocket(Socket* socket) {
  { const std::lock_guard busy(socket->busy); }
  socket->closed = true;
  socket->bytes.reset();  // closing takes it out of epoll
  if (socket->mover != nullptr) socket->mover->Forget();
}

void TcpTransport::ArmTimer() {
  if (timer_armed_) return;
  timer_armed_ = true;
  const int64_t period_ns = std::max<int64_t>(
      1'000'000, std::min({options_.heartbeat_ns, options_.lost_after_ns / 4,
                           options_.handshake_timeout_ns / 4, options_.connect_timeout_ns / 4}));
  itimerspec spec{};
  spec.it_value.tv_sec = period_ns / 1'000'000'000;
  spec.it_value.tv_nsec = period_ns % 1'000'000'000;
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void TcpTransport::Tick() {
  uint64_t count;
  [[maybe_unused]] const ssize_t ignored = ::read(timer_.get(), &count, sizeof(count));
  timer_armed_ = false;
  if (listener_paused_) {
    listener_paused_ = false;
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &listener_}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event);
  }
  while (!strangers_.empty()) {  // the oldest first
    Socket* socket = strangers_.front().get();
    if (now_ns_ - socket->since_ns < options_.handshake_timeout_ns) break;
    Refuse(socket, absl::DeadlineExceededError(
                       socket->hello.has_value()
                           ? absl::StrCat("hello: sender is ", socket->hello->from,
                                          ", expected a node that is to be a peer")
                           : absl::StrCat("has sent ", socket->hello_got, " bytes in ",
                                          options_.handshake_timeout_ns / 1'000'000,
                                          " ms, expected ", wire::kHelloBytes)));
  }
  bool any = !strangers_.empty();
  for (const auto& [id, owned] : peers_) {
    Peer* peer = owned.get();
    if (peer->lost) continue;
    any = true;
    if (!peer->up) {
      if (now_ns_ - peer->added_ns >= options_.connect_timeout_ns) {
        Lose(peer, absl::DeadlineExceededError(
                       absl::StrCat("not connected after ", options_.connect_timeout_ns / 1'000'000,
                                    " ms, ", peer->ready, " of its streams are")));
      }
      continue;
    }
    if (peer->ending_ns != 0 && now_ns_ - peer->ending_ns >= options_.heartbeat_ns) {
      Lose(peer, peer->ending);
    } else if (now_ns_ - peer->came_ns >= options_.lost_after_ns) {
      Lose(peer, absl::UnavailableError(absl::StrCat(
                     "silent for ", (now_ns_ - peer->came_ns) / 1'000'000,
                     " ms, expected a word every ", options_.heartbeat_ns / 1'000'000)));
    } else if (now_ns_ - peer->sent_ns >= options_.heartbeat_ns && !peer->sockets[0]->blocked) {
      engine_.Ping(peer->engine);
    }
    if (!peer->lost && peer->engine->tally != nullptr && peer->sockets[0] != nullptr) {
      peer->engine->tally->rtt_ns.Set(RoundTripNs(peer->sockets[0]->bytes->fd()));
    }
  }
  if (any) ArmTimer();
}

}  // namespace shunt::transport
