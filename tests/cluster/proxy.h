// A TCP proxy on loopback that a test can cut: a network between two programs.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/core/fd.h"

namespace shunt::cluster::testing {

class Proxy {
 public:
  explicit Proxy(uint16_t target) : target_(target), wake_(::eventfd(0, EFD_CLOEXEC)) {
    listener_.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = Address(0);
    socklen_t size = sizeof address;
    SHUNT_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    SHUNT_CHECK(::listen(listener_.get(), 64) == 0);
    SHUNT_CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Proxy() {
    stop_ = true;
    Wake();
    thread_.join();
  }

  uint16_t port() const { return port_; }
  // Ends all connections, and every new one at once.
  void Cut() { Set(kCut); }
  // Connections stay, but nothing comes through.
  void Stall() { Set(kStalled); }
  void Mend() { Set(kWhole); }

 private:
  enum State { kWhole, kCut, kStalled };
  using Pair = std::pair<UniqueFd, UniqueFd>;

  static sockaddr_in Address(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void Wake() { SHUNT_CHECK(::eventfd_write(wake_.get(), 1) == 0); }
  void Set(State state) {
    state_ = state;
    Wake();
  }

  void Run() {
    std::vector<Pair> pairs;
    while (!stop_) {
      if (state_ == kCut) pairs.clear();
      std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      const short events = state_ == kStalled ? 0 : POLLIN;
      for (const Pair& pair : pairs) {
        fds.push_back({pair.first.get(), events, 0});
        fds.push_back({pair.second.get(), events, 0});
      }
      ::poll(fds.data(), fds.size(), -1);
      eventfd_t ignored;
      if (fds[0].revents != 0) ::eventfd_read(wake_.get(), &ignored);
      if (state_ != kStalled) {
        for (size_t i = pairs.size(); i-- > 0;) {
          if (!Move(fds[2 + 2 * i], pairs[i].second.get()) ||
              !Move(fds[3 + 2 * i], pairs[i].first.get())) {
            pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(i));
          }
        }
      }
      if (fds[1].revents != 0) {
        UniqueFd accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        UniqueFd onward(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_in address = Address(target_);
        if (state_ != kCut && ::connect(onward.get(), reinterpret_cast<const sockaddr*>(&address),
                                        sizeof address) == 0) {
          pairs.emplace_back(std::move(accepted), std::move(onward));
        }
      }
    }
  }

  static bool Move(const pollfd& from, int to) {
    if (from.revents == 0) return true;
    char buffer[65536];
    const ssize_t got = ::recv(from.fd, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t n = ::send(to, buffer + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += n;
    }
    return true;
  }

  const uint16_t target_;
  const UniqueFd wake_;
  UniqueFd listener_;
  uint16_t port_ = 0;
  std::atomic<State> state_ = kWhole;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace shunt::cluster::testing
