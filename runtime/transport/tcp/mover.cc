#include "runtime/transport/tcp/mover.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::transport {
namespace {

constexpr int kEventsMax = 64;
// Read from one socket before the next has its turn, and the owner hears of what has come.
constexpr size_t kReadBudget = 256 << 10;
// Written to one socket before the next has its turn: a peer that takes all it is sent is not
// alone.
constexpr size_t kWriteBudget = 256 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<TcpTransport::Mover>> TcpTransport::Mover::Start(
    TcpTransport* transport) {
  std::unique_ptr<Mover> mover(new Mover(transport));
  mover->epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!mover->epoll_.valid()) return ErrnoStatus(errno, "making an epoll descriptor");
  SHUNT_ASSIGN_OR_RETURN(mover->wake_, MakeEventFd());
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  ::epoll_ctl(mover->epoll_.get(), EPOLL_CTL_ADD, mover->wake_.get(), &event);
  mover->thread_ = std::thread([m = mover.get()] { m->Run(); });
  return mover;
}

TcpTransport::Mover::~Mover() {
  {
    std::lock_guard lock(transport_->mutex_);
    stop_ = true;
    Ask();
  }
  if (thread_.joinable()) thread_.join();
}

void TcpTransport::Mover::Ask() {
  asked_.store(true);
  if (sleeps_.exchange(false)) SignalEventFd(wake_.get());
}

void TcpTransport::Mover::Adopt(std::shared_ptr<Socket> socket) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = socket.get()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket->bytes->fd(), &event);
  socket->watched = EPOLLIN;
  socket->mover = this;
  sockets_.push_back(std::move(socket));
}

void TcpTransport::Mover::Write(Socket* socket) {
  if (socket->queued) return;
  socket->queued = true;
  to_write_.push_back(socket);
  Ask();
}

void TcpTransport::Mover::Forget() {
  closed_some_ = true;
  Ask();
}

void TcpTransport::Mover::Run() {
  if (transport_->options_.on_mover_start) transport_->options_.on_mover_start();
  const int64_t spin_ns = transport_->options_.mover_spin_ns;
  epoll_event events[kEventsMax];
  for (;;) {
    bool sleeps = spin_ns == 0 || NowNs() - moved_ns_ > spin_ns;
    if (sleeps) {
      sleeps_.store(true);
      sleeps = !asked_.load();  // who asks from now on signals
    }
    const int count = ::epoll_wait(epoll_.get(), events, kEventsMax, sleeps ? -1 : 0);
    sleeps_.store(false);
    if (count <= 0 && !asked_.load()) continue;
    const std::lock_guard lock(transport_->mutex_);
    asked_.store(false);
    if (stop_) return;
    for (int i = 0; i < count; ++i) {
      auto* const socket = static_cast<Socket*>(events[i].data.ptr);
      if (socket == nullptr) {
        DrainEventFd(wake_.get());
        continue;
      }
      Serve(socket, (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0,
            (events[i].events & EPOLLOUT) != 0);
      transport_->TellOwner();
    }
    // Who has more is at the end of the next list.
    for (Socket* socket : std::exchange(to_write_, {})) {
      socket->queued = false;
      Serve(socket, false, !socket->blocked);
    }
    // Only now: what the events and the list name was alive so far.
    if (std::exchange(closed_some_, false)) {
      std::erase_if(to_write_, [](const Socket* socket) { return socket->closed; });
      std::erase_if(sockets_, [](const auto& socket) { return socket->closed; });
    }
    transport_->TellOwner();
  }
}

void TcpTransport::Mover::Serve(Socket* socket, bool readable, bool writable) {
  if (socket->closed || !socket->failed.ok()) return;
  Gate gate(&transport_->mutex_, &socket->busy, &socket->closed);
  Engine& engine = transport_->engine_;
  bool came = false;
  FrameWriter::Outcome out;
  absl::Status status;
  if (readable) {
    status = socket->reader->Read(socket->bytes.get(), &engine, socket->peer->engine,
                                  socket->stream, socket->peer->version, kReadBudget, &came, &gate);
  }
  if (socket->closed) return;
  if (writable && status.ok()) {
    status = socket->writer.Write(socket->bytes.get(), &engine, socket->peer->engine,
                                  socket->stream, socket->peer->version, transport_->options_.crc,
                                  kWriteBudget, &out, &gate);
    socket->blocked = out.blocked;
  }
  if (socket->closed) return;
  if (came || out.went) moved_ns_ = NowNs();
  if (came) socket->peer->came_ns = moved_ns_;
  if (out.went) socket->peer->sent_ns = moved_ns_;
  if (!status.ok()) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket->bytes->fd(), nullptr);
    return transport_->Fail(socket, status);  // the owner ends the peer
  }
  if (out.more) Write(socket);
  const uint32_t wanted = socket->blocked ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (socket->watched == wanted) return;
  epoll_event event{.events = wanted, .data = {.ptr = socket}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket->bytes->fd(), &event);
  socket->watched = wanted;
}

}  // namespace shunt::transport
