// A TCP server on loopback that speaks as much HTTP as a test wants it to: each request is answered
// with the bytes that the test gives, then the connection goes on, ends, resets, or stays silent.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/core/fd.h"

namespace shunt::storage::testing {

enum class Then { kGoOn, kClose, kReset, kStall };

struct Reply {
  std::string bytes;
  Then then = Then::kGoOn;
};

inline Reply Http200(const std::string& body, const std::string& headers = "") {
  return {"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
          "\r\n" + body};
}
inline Reply HttpError(int status, const std::string& code = "") {
  const std::string body =
      code.empty() ? "" : "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code></Error>";
  return {"HTTP/1.1 " + std::to_string(status) +
          " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body};
}

class HostileServer {
 public:
  // `answer` gets a request's head and body, and its number from 0 on. Called on a thread of the
  // server's, one call at a time.
  using Answer = std::function<Reply(const std::string& head, const std::string& body, int number)>;

  explicit HostileServer(Answer answer) : answer_(std::move(answer)) {
    listener_.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    SHUNT_CHECK(::bind(listener_.get(), generic, length) == 0);
    SHUNT_CHECK(::listen(listener_.get(), 64) == 0);
    SHUNT_CHECK(::getsockname(listener_.get(), generic, &length) == 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    end_ = *MakeEventFd();
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~HostileServer() {
    SignalEventFd(end_.get());
    acceptor_.join();
    for (std::thread& thread : connections_) thread.join();
  }

  const std::string& url() const { return url_; }
  int requests() const { return requests_; }
  // Leaves who asks for leave to send a body ("Expect: 100-continue") without an answer to that.
  void GiveNoLeave() { gives_leave_ = false; }

 private:
  // False if the test is over.
  bool WaitReadable(int fd) const {
    pollfd ready[2] = {{.fd = fd, .events = POLLIN, .revents = 0},
                       {.fd = end_.get(), .events = POLLIN, .revents = 0}};
    ::poll(ready, 2, -1);
    return ready[1].revents == 0;
  }
  void Accept() {
    while (WaitReadable(listener_.get())) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) connections_.emplace_back([this, fd] { Serve(UniqueFd(fd)); });
    }
  }
  bool ReadMore(int fd, std::string* buffer) const {
    char bytes[65536];
    if (!WaitReadable(fd)) return false;
    const ssize_t got = ::recv(fd, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    buffer->append(bytes, static_cast<size_t>(got));
    return true;
  }
  void Serve(UniqueFd fd) {
    std::string buffer;
    for (;;) {
      size_t end;
      while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
        if (!ReadMore(fd.get(), &buffer)) return;
      }
      const std::string head = buffer.substr(0, end + 4);
      const size_t length = head.find("Content-Length: ");
      const size_t bytes =
          length == std::string::npos ? 0 : std::strtoul(&head[length + 16], nullptr, 10);
      if (gives_leave_ && head.find("100-continue") != std::string::npos) {
        ::send(fd.get(), "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL);
      }
      while (buffer.size() < end + 4 + bytes) {
        if (!ReadMore(fd.get(), &buffer)) return;
      }
      Reply reply;
      {
        const std::lock_guard lock(mutex_);
        reply = answer_(head, buffer.substr(end + 4, bytes), requests_++);
      }
      buffer.erase(0, end + 4 + bytes);
      for (size_t sent = 0; sent < reply.bytes.size();) {
        const ssize_t now =
            ::send(fd.get(), &reply.bytes[sent], reply.bytes.size() - sent, MSG_NOSIGNAL);
        if (now <= 0) return;
        sent += static_cast<size_t>(now);
      }
      if (reply.then == Then::kClose) return;
      if (reply.then == Then::kReset) {
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        return;
      }
      if (reply.then == Then::kStall) {
        WaitReadable(-1);
        return;
      }
    }
  }

  const Answer answer_;
  UniqueFd listener_, end_;
  std::string url_;
  std::mutex mutex_;
  std::atomic<int> requests_{0};
  std::atomic<bool> gives_leave_{true};
  std::vector<std::thread> connections_;  // of the acceptor's
  std::thread acceptor_;
};

}  // namespace shunt::storage::testing
