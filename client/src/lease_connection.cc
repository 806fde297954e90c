#include "client/src/lease_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"

namespace shunt::client {
namespace {

// A reply with the names of 128 members is the longest.
constexpr size_t kReplyBytesMax = 64 << 10;
constexpr size_t kReplyFdsMax = 4;
// What the daemon reads as one packet; it takes a longer one for an attack. A section of 1024 sets
// fits.
constexpr size_t kRequestBytesMax = 96 << 10;

absl::Status GoneStatus() {
  return absl::UnavailableError(
      "shuntd is gone: it closed the session's lease socket; the session is over. Once shuntd runs "
      "again, open a new one (shunt_open; connect() in Python)");
}

int PollTimeoutMs(int64_t deadline_ns) {
  if (deadline_ns == kNeverNs) return -1;
  const int64_t left_ns = deadline_ns - NowNs();
  // Rounded up: an early return would spin.
  return left_ns <= 0 ? 0 : static_cast<int>(std::min<int64_t>(left_ns / 1'000'000 + 1, INT_MAX));
}

// condition_variable adds to the clock's value: kNeverNs would overflow.
std::chrono::steady_clock::time_point TimePoint(int64_t deadline_ns) {
  const int64_t ns = std::min(deadline_ns, NowNs() + int64_t{3600} * 1'000'000'000);
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

}  // namespace

LeaseConnection::LeaseConnection(UniqueFd socket)
    : socket_(std::move(socket)), buffer_(kReplyBytesMax) {}

absl::StatusOr<std::unique_ptr<LeaseConnection>> LeaseConnection::Connect(const std::string& path) {
  SHUNT_ASSIGN_OR_RETURN(UniqueFd socket,
                         ConnectUnix(path, SocketType::kSeqPacket, std::chrono::seconds(10)));
  return std::unique_ptr<LeaseConnection>(new LeaseConnection(std::move(socket)));
}

absl::Status LeaseConnection::Send(uint64_t id, const LeaseRequest& request,
                                   std::span<const int> fds) {
  const std::string packet = Encode(id, request);
  if (packet.size() > kRequestBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("the request has ", packet.size(),
                                                     " bytes, at most ", kRequestBytesMax,
                                                     " fit on the lease socket"));
  }
  std::lock_guard lock(send_mutex_);
  return SendWithFds(socket_.get(), std::as_bytes(std::span(packet)), fds);
}

absl::StatusOr<LeaseConnection::Reply> LeaseConnection::Call(const LeaseRequest& request,
                                                             int64_t deadline_ns,
                                                             std::span<const int> fds) {
  Waiter waiter;
  std::unique_lock lock(mutex_);
  const uint64_t id = next_id_++;
  waiters_.emplace(id, &waiter);
  lock.unlock();
  if (absl::Status sent = Send(id, request, fds); !sent.ok()) {
    lock.lock();
    waiters_.erase(id);
    return gone_ || absl::IsUnavailable(sent) ? GoneStatus() : sent;
  }

  lock.lock();
  while (!waiter.done) {
    if (NowNs() >= deadline_ns) {
      waiters_.erase(id);
      return absl::UnavailableError("shuntd does not answer: it is stopped or overloaded");
    }
    if (reading_) {
      changed_.wait_until(lock, TimePoint(deadline_ns));
      continue;
    }
    reading_ = true;
    lock.unlock();
    ReadOne(deadline_ns);
    lock.lock();
    reading_ = false;
    // Also when the packet was our own: somebody else must read on.
    changed_.notify_all();
  }
  return std::move(waiter.reply);
}

void LeaseConnection::ReadOne(int64_t deadline_ns) {
  pollfd poll{socket_.get(), POLLIN, 0};
  const int ready = ::poll(&poll, 1, PollTimeoutMs(deadline_ns));
  if (ready == 0 || (ready < 0 && errno == EINTR)) return;
  absl::StatusOr<Received> received = RecvWithFds(socket_.get(), buffer_, kReplyFdsMax);
  if (!received.ok() || received->closed) return FailAll();
  if (received->would_block) return;
  auto message = DecodeLeaseReply(
      std::string_view(reinterpret_cast<const char*>(buffer_.data()), received->bytes));
  if (!message.ok()) return FailAll();
  Deliver(*std::move(message), std::move(received->fds));
}

void LeaseConnection::Deliver(LeaseReply message, std::vector<UniqueFd> fds) {
  std::lock_guard lock(mutex_);
  const auto at = waiters_.find(message.id);
  if (at == waiters_.end()) return;  // its caller's deadline has passed
  Waiter& waiter = *at->second;
  waiters_.erase(at);
  waiter.done = true;
  if (message.code != 0) {
    waiter.reply = absl::Status(static_cast<absl::StatusCode>(message.code), message.message);
  } else {
    waiter.reply = Reply{std::move(message), std::move(fds)};
  }
}

void LeaseConnection::FailAll() {
  gone_ = true;
  std::lock_guard lock(mutex_);
  for (auto& [id, waiter] : waiters_) {
    waiter->done = true;
    waiter->reply = GoneStatus();
  }
  waiters_.clear();
}

bool LeaseConnection::Gone() {
  if (gone_.load(std::memory_order_relaxed)) return true;
  pollfd poll{socket_.get(), POLLRDHUP, 0};
  if (::poll(&poll, 1, 0) <= 0 || poll.revents == 0) return false;
  gone_.store(true, std::memory_order_relaxed);
  return true;
}

void LeaseConnection::Shutdown() {
  gone_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);
}

void LeaseConnection::CloseInChild() { ::close(socket_.Release()); }

}  // namespace shunt::client
