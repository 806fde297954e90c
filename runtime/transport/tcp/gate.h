// Lets the other threads at the engine while one is in a system call.
#pragma once

#include <mutex>

namespace shunt::transport {

// Of one socket. `engine` is the lock that everything of a transport is under; `busy` is held for
// as long as the kernel may touch a buffer that the engine has named, or checksums are made of it.
// Who is about to give buffers
// back waits for `busy` while holding `engine`: nobody waits the other way around.
class Gate {
 public:
  // `closed` is under `engine`.
  Gate(std::mutex* engine, std::mutex* busy, const bool* closed)
      : engine_(engine), busy_(busy), closed_(closed) {}

  // While one lives, the engine is others'. `gate` may be null: then there are no others.
  class Opened {
   public:
    explicit Opened(Gate* gate) : gate_(gate) {
      if (gate_ == nullptr) return;
      gate_->busy_->lock();
      gate_->engine_->unlock();
    }
    ~Opened() {
      if (gate_ == nullptr) return;
      gate_->busy_->unlock();
      gate_->engine_->lock();
    }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

   private:
    Gate* const gate_;
  };

  // The socket was closed meanwhile: its peer is no more. Only to movers can that happen, for it is
  // the owner who closes.
  bool closed() const { return *closed_; }

 private:
  std::mutex* const engine_;
  std::mutex* const busy_;
  const bool* const closed_;
};

}  // namespace shunt::transport
