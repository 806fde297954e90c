// The thread that keeps this process' streams from waiting for ever: the only one that libshunt
// starts for collectives, at a session's first call on a stream.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "client/src/cuda/gates.h"
#include "client/src/lease_connection.h"
#include "runtime/board/layout.h"
#include "runtime/core/fd.h"

namespace shunt::client::cuda {

// It sleeps on the lease socket. When the daemon is gone, it lets every stream pass and the boards
// fail. It gives captured calls back to the daemon when their graph is gone, and lets the replays
// of those pass whose communicator is dead, left, or whose session is closed.
//
// Thread-safe. The thread keeps it; it ends once the session is closed and no graph that has
// captured a call is left.
class Watcher : public std::enable_shared_from_this<Watcher> {
 public:
  // `lease` may go after Stop.
  static absl::StatusOr<std::shared_ptr<Watcher>> Start(LeaseConnection* lease,
                                                        std::shared_ptr<Gates> gates);

  Gates& gates() { return *gates_; }

  // A communicator whose calls meet streams. Its board is looked at until Left.
  struct Watched {
    explicit Watched(uint64_t communicator_id, const board::Board& b)
        : id(communicator_id), board(b) {}
    const uint64_t id;
    board::Board board;
    bool left = false;  // the watcher's
  };
  void Add(std::shared_ptr<Watched> communicator);
  void Left(const std::shared_ptr<Watched>& communicator);
  // Looks at the boards now.
  void Nudge();

  // A call that a graph repeats, once the daemon knows it. The result is for GraphDestroyed.
  void* AddCaptured(std::shared_ptr<Watched> communicator, uint64_t sequence,
                    const Gates::Gate& gate);
  // Neither calls CUDA nor waits: for a thread of the driver's.
  static void GraphDestroyed(void* captured);

  // The session is being closed: that the lease ends is no news any more.
  void BeginStop();
  // After the lease's end: lets all streams pass, and the thread has done with the lease.
  void Stop();

 private:
  struct Captured {
    Watcher* watcher;
    std::shared_ptr<Watched> communicator;
    uint64_t sequence;
    Gates::Gate gate;
  };

  Watcher(LeaseConnection* lease, std::shared_ptr<Gates> gates, UniqueFd wake);

  void Run();
  // One look; returns for how long to sleep, in milliseconds, -1 for ever. With the lock held.
  int Look();
  void DaemonGone();
  void GiveBack(const Captured& captured);

  LeaseConnection* const lease_;
  const std::shared_ptr<Gates> gates_;
  const UniqueFd wake_;

  std::mutex mutex_;  // the rest
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Watched>> communicators_;
  std::vector<std::unique_ptr<Captured>> captured_;
  std::vector<std::unique_ptr<Captured>> destroyed_;  // graph gone, the daemon not yet told
  bool gone_ = false;
  bool stopping_ = false;
  bool stop_ = false;
  bool parked_ = false;  // has done with the lease
};

}  // namespace shunt::client::cuda
