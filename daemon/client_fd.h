// Descriptors that clients have sent. What is behind one is the client's choice: closing it may
// wait for a file system's server, or for a connection's peer, as long as they like.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "runtime/core/fd.h"

namespace shunt::daemon {

// Closes them, on a thread of each user's that is there as long as it has something to close.
// Thread-safe.
class FdCloser {
 public:
  // Starts a detached thread; false if none is to be had.
  using StartThread = bool (*)(void* (*main)(void*), void* arg);

  explicit FdCloser(StartThread start = &Detached)
      : start_(start), state_(std::make_shared<State>()) {}
  // Waits for a moment; a thread that hangs is left behind.
  ~FdCloser();
  FdCloser(const FdCloser&) = delete;

  // Never closes it itself: without a thread it waits for the next that somebody drops.
  void Close(uint32_t user, UniqueFd fd);
  // So many of the user's wait that no more of them should be accepted.
  bool Full(uint32_t user) const;

 private:
  struct User {
    std::deque<int> waiting;
    bool has_thread = false;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable idle;
    std::unordered_map<uint32_t, User> users;  // who has a thread, or lacks one
  };
  struct Job {
    std::shared_ptr<State> state;
    uint32_t user;
  };
  static bool Detached(void* (*main)(void*), void* arg);
  static void* Run(void* job);

  const StartThread start_;
  const std::shared_ptr<State> state_;
};

// One of them: whoever drops it has it closed elsewhere.
class ClientFd {
 public:
  ClientFd() = default;
  ClientFd(UniqueFd fd, uint32_t user, FdCloser* closer)
      : fd_(std::move(fd)), user_(user), closer_(closer) {}
  ClientFd(ClientFd&& other) noexcept = default;
  ClientFd& operator=(ClientFd&& other) noexcept {
    if (this == &other) return *this;
    Drop();
    fd_ = std::move(other.fd_);
    user_ = other.user_;
    closer_ = other.closer_;
    return *this;
  }
  ~ClientFd() { Drop(); }

  int get() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  // For who may wait when it is closed, or knows that it does not wait (an eventfd).
  UniqueFd Release() { return std::move(fd_); }

 private:
  void Drop() {
    if (fd_.valid()) closer_->Close(user_, std::move(fd_));
  }

  UniqueFd fd_;
  uint32_t user_ = 0;
  FdCloser* closer_ = nullptr;
};

}  // namespace shunt::daemon
