#include "bench/bounds/tcp_doubling.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

constexpr std::chrono::seconds kTimeout{30};

std::string FileOf(const std::string& directory, int rank) {
  return absl::StrCat(directory, "/bare-", rank);
}

// Publishes where `rank` listens: the file is there whole or not at all.
absl::Status Publish(const std::string& directory, int rank, const std::string& address, int port) {
  const std::string path = FileOf(directory, rank);
  std::FILE* file = std::fopen((path + ".new").c_str(), "w");
  if (file == nullptr) return ErrnoStatus(errno, "cannot write " + path);
  std::fprintf(file, "%s %d\n", address.c_str(), port);
  if (std::fclose(file) != 0 || std::rename((path + ".new").c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot write " + path);
  }
  return absl::OkStatus();
}

absl::StatusOr<sockaddr_in> LookUp(const std::string& directory, int rank) {
  const int64_t deadline = DeadlineAfterNs(kTimeout);
  std::FILE* file = nullptr;
  while ((file = std::fopen(FileOf(directory, rank).c_str(), "r")) == nullptr) {
    if (NowNs() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", rank, " did not appear"));
    }
    ::usleep(1000);
  }
  char address[64] = {};
  int port = 0;
  const bool read = std::fscanf(file, "%63s %d", address, &port) == 2;
  std::fclose(file);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(port));
  if (!read || ::inet_pton(AF_INET, address, &where.sin_addr) != 1) {
    return absl::InternalError(absl::StrCat("rank ", rank, " wrote no address"));
  }
  return where;
}

bool SendAll(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

absl::Status NoDelay(int fd) {
  const int one = 1;
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0) {
    return ErrnoStatus(errno, "TCP_NODELAY");
  }
  return absl::OkStatus();
}

// The lower of two ranks connects and says who it is; the higher one may meet several at once.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& directory, int rank, int self) {
  SHUNT_ASSIGN_OR_RETURN(const sockaddr_in where, LookUp(directory, rank));
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot connect to rank ", rank));
  }
  SHUNT_RETURN_IF_ERROR(NoDelay(fd.get()));
  if (!SendAll(fd.get(), &self, sizeof(self))) return ErrnoStatus(errno, "send");
  return fd;
}

}  // namespace

absl::StatusOr<TcpDoubling> TcpDoubling::Connect(int rank, int ranks, const std::string& address,
                                                 const std::string& directory) {
  TcpDoubling self;
  self.rank_ = rank;
  self.power_ = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const int rounds = std::bit_width(static_cast<unsigned>(self.power_)) - 1;
  self.peers_.resize(static_cast<size_t>(rounds) + 1);
  std::vector<int> partners(self.peers_.size(), -1);
  if (rank < self.power_) {
    for (int k = 0; k < rounds; ++k) partners[static_cast<size_t>(k)] = rank ^ (1 << k);
    if (rank + self.power_ < ranks) partners.back() = rank + self.power_;
  } else {
    partners.back() = rank - self.power_;
  }

  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  if (!listener.valid() || ::inet_pton(AF_INET, address.c_str(), &where.sin_addr) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\" is no IPv4 address"));
  }
  socklen_t length = sizeof(where);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&where), length) != 0 ||
      ::listen(listener.get(), 128) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&where), &length) != 0) {
    return ErrnoStatus(errno, "cannot listen at " + address);
  }
  const timeval timeout{kTimeout.count(), 0};  // for accept
  ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  SHUNT_RETURN_IF_ERROR(Publish(directory, rank, address, ntohs(where.sin_port)));

  int lower = 0;
  for (size_t i = 0; i < partners.size(); ++i) {
    if (partners[i] > rank) {
      SHUNT_ASSIGN_OR_RETURN(self.peers_[i], ConnectTo(directory, partners[i], rank));
    }
    lower += partners[i] >= 0 && partners[i] < rank;
  }
  for (; lower > 0; --lower) {
    UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("rank ", rank, ": accept"));
    SHUNT_RETURN_IF_ERROR(NoDelay(fd.get()));
    int who = -1;
    if (!ReceiveAll(fd.get(), &who, sizeof(who))) return ErrnoStatus(errno, "recv");
    for (size_t i = 0; i < partners.size(); ++i) {
      if (partners[i] == who) self.peers_[i] = std::move(fd);
    }
  }
  return self;
}

bool TcpDoubling::Send(int round, const float* data, size_t count) {
  return SendAll(peers_[static_cast<size_t>(round)].get(), data, count * sizeof(float));
}

bool TcpDoubling::ReceiveInto(int round, float* data, size_t count) {
  return ReceiveAll(peers_[static_cast<size_t>(round)].get(), data, count * sizeof(float));
}

bool TcpDoubling::Exchange(int round, float* data, size_t count) {
  if (!Send(round, data, count) || !ReceiveInto(round, scratch_.data(), count)) return false;
  for (size_t i = 0; i < count; ++i) data[i] += scratch_[i];
  return true;
}

bool TcpDoubling::AllReduce(float* data, size_t count) {
  scratch_.resize(count);
  const int fold = static_cast<int>(peers_.size()) - 1;
  if (rank_ >= power_) return Send(fold, data, count) && ReceiveInto(fold, data, count);
  const bool folded = peers_.back().valid();
  if (folded) {
    if (!ReceiveInto(fold, scratch_.data(), count)) return false;
    for (size_t i = 0; i < count; ++i) data[i] += scratch_[i];
  }
  for (int round = 0; round < fold; ++round) {
    if (!Exchange(round, data, count)) return false;
  }
  return !folded || Send(fold, data, count);
}

}  // namespace shunt::bench
